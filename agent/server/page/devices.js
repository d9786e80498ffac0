// The lists of microphones and loudspeakers, kept up to date. The choice is stored.

/** A <select> of the devices of one kind, "audioinput" or "audiooutput"; empty means the browser's default. */
export class DeviceList {
  constructor(select, kind, onChoice) {
    this.select = select;
    this.kind = kind;
    this.wanted = recall(kind);
    select.addEventListener("change", () => {
      this.wanted = select.value;
      remember(kind, this.wanted);
      onChoice(this.wanted);
    });
    navigator.mediaDevices?.addEventListener("devicechange", () => this.refresh());
    this.refresh();
  }

  /** Read the list again: the browser gives names only after the user has allowed the microphone. */
  async refresh() {
    const all = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
    const ours = all.filter(({ kind, deviceId }) => kind === this.kind && deviceId && deviceId !== "default");
    const options = ours.map(({ label, deviceId }) => new Option(label || "Unnamed device", deviceId));
    this.select.replaceChildren(new Option("Browser default", ""), ...options);
    this.select.value = ours.some(({ deviceId }) => deviceId === this.wanted) ? this.wanted : "";
  }

  /** The id of the chosen device, empty for the browser's default or if the device is missing. */
  get chosen() {
    return this.select.value;
  }
}

// A browser may refuse storage. The choice then holds until the page is closed.
function recall(kind) {
  try {
    return localStorage.getItem(kind) ?? "";
  } catch {
    return "";
  }
}

function remember(kind, device) {
  try {
    localStorage.setItem(kind, device);
  } catch {
    // the browser refuses storage
  }
}

/** Return a sentence about the browser's processing of the microphone's audio. */
export function describeProcessing({ echoCancellation, noiseSuppression, autoGainControl }) {
  const on = [
    echoCancellation && "echo cancellation",
    noiseSuppression && "noise suppression",
    autoGainControl && "automatic gain",
  ].filter(Boolean);
  const done = on.length ? `The browser applies ${on.join(", ")}.` : "The browser does not process the sound.";
  return echoCancellation ? done : `${done} Without echo cancellation the agent may hear itself: use headphones.`;
}
