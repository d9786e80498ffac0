// Stores the conversation for a reload of the page, until its tab is closed: the texts, and whether it was by voice.

const STORAGE_KEY = "rejoinder.said";

/** Keep {voice, said}, `said` as History.texts() returns it; null to forget. */
export function keep(call) {
  try {
    if (call) sessionStorage.setItem(STORAGE_KEY, JSON.stringify(call));
    else sessionStorage.removeItem(STORAGE_KEY);
  } catch {
    // A browser may refuse storage. After a reload the page is then empty.
  }
}

/** Return what was kept, or null. */
export function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(STORAGE_KEY));
  } catch {
    return null;
  }
}
