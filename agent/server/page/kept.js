// What outlives a page that is loaded again, though not its tab: what was said, and whether it was by voice.

const PLACE = "rejoinder.said";

/** Keep {voice, said}, `said` as History.told() returns it; null to forget. */
export function keep(call) {
  try {
    if (call) sessionStorage.setItem(PLACE, JSON.stringify(call));
    else sessionStorage.removeItem(PLACE);
  } catch {
    // A browser may refuse to keep anything: then the page begins anew.
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
