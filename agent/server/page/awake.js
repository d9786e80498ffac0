// Keeps a phone's screen on during a call: a phone that sleeps switches its microphone off.

export function stayAwake(signal) {
  const ask = async () => {
    if (document.hidden || signal.aborted) return;
    try {
      const lock = await navigator.wakeLock.request("screen");
      if (signal.aborted) lock.release();
      else signal.addEventListener("abort", () => lock.release(), { once: true });
    } catch {
      // Some browsers have no wake lock, and a low battery refuses it. The screen may then switch off.
    }
  };
  document.addEventListener("visibilitychange", ask, { signal }); // the browser releases the lock when the page is hidden
  ask();
}
