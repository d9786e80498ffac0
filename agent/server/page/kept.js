// Stores the conversation for a reload of the page, until its tab is closed: the texts, and whether it was by voice.

const PLACE = "rejoinder.said";

/** Keep {voice, said}, `said` as History.told() returns it; null to forget. */
export function keep(call) {
  try {
    if (call) sessionStorage.setItem(PLACE, JSON.stringify(call));
    else sessionStorage.removeItem(PLACE);
  } catch {
    // A browser may refuse storage. After a reload the page is then empty.
  }
}

/** Return what was kept, or null. */
export function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(PLACE));
  } catch {
    return null;
  }
}
