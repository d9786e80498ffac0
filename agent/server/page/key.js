// The API key that a server may need. The entered key is stored until the tab is closed.

const STORAGE_KEY = "rejoinder.key";
const PROTOCOL = "openai-insecure-api-key."; // browsers can send no headers with a WebSocket

let key = "";
try {
  key = sessionStorage.getItem(STORAGE_KEY) ?? "";
} catch {
  // A browser may refuse storage. The key then holds until the page is reloaded.
}

export function keepKey(entered) {
  key = entered;
  try {
    sessionStorage.setItem(STORAGE_KEY, entered);
  } catch {
    // As above.
  }
}

/** The sub-protocols of a socket, with the key. */
export function protocols() {
  return key ? ["realtime", PROTOCOL + key] : [];
}

/** The headers of a request, with the key. */
export function headers() {
  return key ? { Authorization: `Bearer ${key}` } : {};
}
