// A phone must not fall asleep during a call: its microphone would.

export function stayAwake(signal) {
  const ask = async () => {
    if (document.hidden || signal.aborted) return;
    try {
      const lock = await navigator.wakeLock.request("screen");
      if (signal.aborted) lock.release();
      else signal.addEventListener("abort", () => lock.release(), { once: true });
    } catch {
      // Not every browser has it, and a low battery refuses: then the screen does what it always does.
    }
  };
  document.addEventListener("visibilitychange", ask, { signal }); // the lock is gone whenever the page is hidden
  ask();
}
