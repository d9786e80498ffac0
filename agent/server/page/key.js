// The API key that a server may need. The entered key is stored until the tab is closed.

const PLACE = "rejoinder.key";
const PROTOCOL = "openai-insecure-api-key."; // browsers can send no headers with a WebSocket

let key = "";
try {
  key = sessionStorage.getItem(PLACE) ?? "";
} catch {
  // A browser may refuse storage. The key then holds until the page is reloaded.
}

export function keepKey(given) {
  key = given;
  try {
    sessionStorage.setItem(PLACE, given);
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
