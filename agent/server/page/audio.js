// The main thread's side of the two worklets. Everything opened here is released when `signal` aborts, even if it
// aborts while the browser is still asking for permission. So nothing outlives the call.

export const RATE = 24000; // hertz on the wire

const WANTED = { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 };

export const CAN_CHOOSE_SPEAKER = typeof AudioContext !== "undefined" && "setSinkId" in AudioContext.prototype;

function releaseWith(signal, release) {
  if (signal.aborted) release();
  else signal.addEventListener("abort", release, { once: true });
}

function openContext(signal, options) {
  const context = new AudioContext({ latencyHint: "interactive", ...options });
  releaseWith(signal, () => context.close());
  return context;
}

async function addWorklet(context, name, options) {
  try {
    await context.audioWorklet.addModule(new URL(`./${name}.js`, import.meta.url));
  } catch (error) {
    error.fetching = true; // the error's name alone does not differ from a microphone error
    throw error;
  }
  return new AudioWorkletNode(context, name, options);
}

function listen(node, signal, handle) {
  node.port.onmessage = ({ data }) => handle(data);
  releaseWith(signal, () => (node.port.onmessage = null)); // ignores late reports after the call
}

/**
 * Open the microphone. `onFrame(pcm, level)` gets 20 ms of int16 as an ArrayBuffer; `onLost` is called when the device
 * is removed. `device`: an id of enumerateDevices, empty for the browser's default. The result has the audio processing
 * that the browser applies: a page can request echo cancellation but not enforce it.
 */
export async function openMicrophone({ signal, device, onFrame, onLost }) {
  const context = openContext(signal); // before the first await: some browsers want it inside the click
  const wanted = device ? { ...WANTED, deviceId: device } : WANTED;
  const stream = await navigator.mediaDevices.getUserMedia({ audio: wanted });
  const [track] = stream.getAudioTracks();
  releaseWith(signal, () => track.stop());
  signal.throwIfAborted();
  track.addEventListener("ended", onLost); // not sent for our own stop()

  const node = await addWorklet(context, "capture", { channelCount: 1, channelCountMode: "explicit" });
  signal.throwIfAborted();
  listen(node, signal, ({ pcm, level }) => onFrame(pcm, level));
  context.createMediaStreamSource(stream).connect(node);
  node.connect(context.destination); // it writes silence, but some browsers run only what reaches the speakers
  await context.resume();
  return {
    settings: track.getSettings(),
    /** A muted microphone sends silence: the server ends a turn by silence, not by missing audio. */
    mute: (muted) => (track.enabled = !muted),
  };
}

/** Open the default loudspeaker, or the one with the id `device`. `onReport` gets the reports of `playback.js`. */
export async function openPlayer({ signal, device, onReport }) {
  const context = openContext(signal, { sampleRate: RATE });
  const node = await addWorklet(context, "playback", { numberOfInputs: 0, outputChannelCount: [1] });
  signal.throwIfAborted();
  listen(node, signal, onReport);
  node.connect(context.destination);
  const through = async (chosen) => {
    if (CAN_CHOOSE_SPEAKER) await context.setSinkId(chosen);
  };
  if (device) await through(device).catch(() => {}); // disconnected since: then the browser's default
  await context.resume();
  return {
    through,
    play: (item, audio) => node.port.postMessage({ item, audio }, [audio]),
    end: () => node.port.postMessage({ end: true }),
    hold: () => node.port.postMessage({ hold: true }),
    release: () => node.port.postMessage({ hold: false }),
    flush: () => node.port.postMessage({ flush: true }),
    /** Samples that the sound card has received but not yet played. */
    underway: () => Math.round((context.outputLatency ?? context.baseLatency) * RATE),
  };
}
