// Plays the agent's voice: an AudioWorklet with a small jitter buffer. It can stop at once, and it knows exactly how
// many samples of each item it has played.
//
// In:  {audio: ArrayBuffer, item}, {end: true} (the newest item has no more audio), {flush: true},
//      {hold: true} (pause and keep all audio), {hold: false} (go on with the next sample)
// Out: {playing: item, samples, level}, {finished: item, samples}, {idle: true}, {flushed: [{item, samples}]},
//      {overflow: true}

const CUSHION = 0.06; // seconds buffered before playback starts: enough for the jitter of a home network
const CUSHION_MAX = 0.25; // seconds that the cushion may grow to after an underrun
const MAX_BUFFERED = 300; // most seconds buffered; a server that paces its audio stays far below
const REPORT_EVERY = 0.04; // seconds between two level reports
const QUANTUM = 128; // samples in one call of process(), fixed by the Web Audio standard

class Playback extends AudioWorkletProcessor {
  constructor() {
    super();
    this.items = []; // oldest first: {id, chunks, offset (samples used of chunks[0]), played, ended}
    this.queued = 0; // samples not yet played, over all items
    this.cushion = CUSHION * sampleRate;
    this.buffering = true;
    this.waited = 0; // samples of silence since the first buffered audio
    this.held = false;
    this.fadedOut = false; // whether the sound has faded out because of a hold
    this.tail = null; // the last 5 ms of what was flushed, fading
    this.unreported = 0;
    this.port.onmessage = ({ data }) => this.#receive(data);
  }

  #receive(message) {
    if (message.flush) this.#flush();
    else if (message.hold !== undefined) this.#hold(message.hold);
    else if (message.end) this.#end();
    else this.#append(message.item, new Int16Array(message.audio));
  }

  #hold(held) {
    this.held = held;
    if (held && this.buffering) this.fadedOut = true; // nothing is playing, so nothing fades out
  }

  #end() {
    if (this.items.length) this.items.at(-1).ended = true;
  }

  #append(id, pcm) {
    if (this.queued + pcm.length > MAX_BUFFERED * sampleRate) return this.port.postMessage({ overflow: true });
    if (this.items.at(-1)?.id !== id) {
      this.#end();
      this.items.push({ id, chunks: [], offset: 0, played: 0, ended: false });
    }
    this.items.at(-1).chunks.push(pcm);
    this.queued += pcm.length;
  }

  process(_inputs, [[output]]) {
    if (this.tail) {
      output.set(this.tail);
      this.tail = null;
    } else if (!(this.held && this.fadedOut) && this.#ready(output.length)) {
      this.#fill(output);
      if (this.held !== this.fadedOut) this.#fade(output);
      this.#report(output);
    }
    return true;
  }

  // Fades into a hold and out of it. No sample is lost, and there is no click.
  #fade(output) {
    for (let i = 0; i < output.length; i++) output[i] *= (this.held ? output.length - i : i) / output.length;
    this.fadedOut = this.held;
  }

  /** Return whether playback may start: enough audio is buffered, no more will come, or the wait was long enough. */
  #ready(quantum) {
    if (!this.buffering || !this.items.length) return !this.buffering;
    if (this.queued) this.waited += quantum;
    const enough = Math.max(this.queued, this.waited) >= this.cushion;
    if (enough || this.items.at(-1).ended) this.buffering = false;
    return !this.buffering;
  }

  #fill(output) {
    let at = 0;
    while (at < output.length && this.items.length) {
      const item = this.items[0];
      const chunk = item.chunks[0];
      if (chunk) at += this.#copy(item, chunk, output, at);
      else if (item.ended) this.#finish(item);
      else break;
    }
    if (at === output.length) return;
    // An underrun within an item means that the network's jitter is larger than the cushion.
    if (this.items.length) this.cushion = Math.min(this.cushion * 1.5, CUSHION_MAX * sampleRate);
    this.#rebuffer();
  }

  #rebuffer() {
    this.buffering = true;
    this.waited = 0;
  }

  #copy(item, chunk, output, at) {
    const count = Math.min(output.length - at, chunk.length - item.offset);
    for (let i = 0; i < count; i++) output[at + i] = chunk[item.offset + i] / 32768;
    item.offset += count;
    item.played += count;
    this.queued -= count;
    if (item.offset === chunk.length) {
      item.chunks.shift();
      item.offset = 0;
    }
    return count;
  }

  #finish(item) {
    this.items.shift();
    this.port.postMessage({ finished: item.id, samples: item.played });
    if (!this.items.length) this.port.postMessage({ idle: true });
  }

  /** Drop all audio except one quantum, which fades out: without the fade there would be a click. */
  #flush() {
    if (!this.buffering && !this.fadedOut) {
      this.tail = new Float32Array(QUANTUM);
      this.#fill(this.tail);
      this.tail = this.tail.map((sample, i) => sample * (1 - i / QUANTUM));
    }
    const flushed = this.items.map(({ id, played }) => ({ item: id, samples: played }));
    this.items = [];
    this.queued = 0;
    this.held = this.fadedOut = false;
    this.#rebuffer();
    this.port.postMessage({ flushed });
  }

  #report(output) {
    this.unreported += output.length;
    if (this.unreported < REPORT_EVERY * sampleRate || !this.items.length) return;
    this.unreported = 0;
    const { id, played } = this.items[0];
    const energy = output.reduce((sum, sample) => sum + sample * sample, 0);
    this.port.postMessage({ playing: id, samples: played, level: Math.sqrt(energy / output.length) });
  }
}

registerProcessor("playback", Playback);
