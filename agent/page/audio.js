// The main thread's side of the two worklets. Whatever is opened here is released when `signal` aborts, also when it
// aborts while the browser is still asking for permission: nothing outlives the call.

export const RATE = 24000; // hertz on the wire

const WANTED = { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 };

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
  await context.audioWorklet.addModule(new URL(`./${name}.js`, import.meta.url));
  return new AudioWorkletNode(context, name, options);
}

function listen(node, signal, handle) {
  node.port.onmessage = ({ data }) => handle(data);
  releaseWith(signal, () => (node.port.onmessage = null)); // a late report must not wake a page that has stopped
}

/**
 * Open the microphone; `onFrame(pcm, level)` gets 20 ms of int16 as an ArrayBuffer, `onLost` tells that the device
 * went away.
 */
export async function openMicrophone({ signal, onFrame, onLost }) {
  const context = openContext(signal); // before the first await: some browsers want it inside the click
  const stream = await navigator.mediaDevices.getUserMedia({ audio: WANTED });
  const tracks = stream.getTracks();
  releaseWith(signal, () => tracks.forEach((track) => track.stop()));
  signal.throwIfAborted();
  tracks.forEach((track) => track.addEventListener("ended", onLost)); // not sent for our own stop()

  const node = await addWorklet(context, "capture", { channelCount: 1, channelCountMode: "explicit" });
  signal.throwIfAborted();
  listen(node, signal, ({ pcm, level }) => onFrame(pcm, level));
  context.createMediaStreamSource(stream).connect(node);
  node.connect(context.destination); // it writes silence, but some browsers run only what reaches the speakers
  await context.resume();
}

/** Open the loudspeaker; `onReport` gets what `playback.js` says. */
export async function openPlayer({ signal, onReport }) {
  const context = openContext(signal, { sampleRate: RATE });
  const node = await addWorklet(context, "playback", { numberOfInputs: 0, outputChannelCount: [1] });
  signal.throwIfAborted();
  listen(node, signal, onReport);
  node.connect(context.destination);
  await context.resume();
  return {
    play: (item, audio) => node.port.postMessage({ item, audio }, [audio]),
    end: () => node.port.postMessage({ end: true }),
    hold: () => node.port.postMessage({ hold: true }),
    release: () => node.port.postMessage({ hold: false }),
    flush: () => node.port.postMessage({ flush: true }),
    /** Samples that were handed to the sound card but have not reached the ear yet. */
    underway: () => Math.round((context.outputLatency ?? context.baseLatency) * RATE),
  };
}
