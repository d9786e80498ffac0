// The key that a server may want of its callers: what was entered here is kept until the tab is closed.

const PLACE = "rejoinder.key";
const PROTOCOL = "openai-insecure-api-key."; // browsers can send no headers with a WebSocket

let key = "";
try {
  key = sessionStorage.getItem(PLACE) ?? "";
} catch {
  // A browser may refuse to keep anything: then it is kept until the page is loaded again.
}

export function keepKey(given) {
  key = given;
  try {
    sessionStorage.setItem(PLACE, given);
  } catch {
    // As above.
  }
}

/** The sub-protocols with which a socket shows it. */
export function protocols() {
  return key ? ["realtime", PROTOCOL + key] : [];
}

/** The headers with which a request shows it. */
export function headers() {
  return key ? { Authorization: `Bearer ${key}` } : {};
}
