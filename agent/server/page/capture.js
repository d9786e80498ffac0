// The microphone's AudioWorklet: converts audio at any rate of the sound card to 20 ms frames of 24 kHz mono int16.
//
// The context runs at the card's own rate, and the conversion happens here, because not every browser can connect
// a microphone to a context of another rate.

const RATE = 24000; // hertz on the wire
const FRAME = 480; // samples in one message: 20 ms
const QUANTUM = 128; // samples in one call of process(), fixed by the Web Audio standard
const PHASES = 160; // fractional positions in the table: both 48 and 44.1 kHz land on them exactly

/** A windowed-sinc resampler that keeps its history between calls. */
class Resampler {
  constructor(from, to) {
    this.step = from / to;
    const cutoff = 0.92 * Math.min(1, to / from); // a little below the lower Nyquist rate, so that nothing aliases
    this.half = Math.ceil(16 / cutoff); // input samples on each side of the centre
    this.table = Array.from({ length: PHASES + 1 }, (_, phase) => this.#taps(phase / PHASES, cutoff));
    this.window = new Float32Array(2 * this.half + QUANTUM);
    this.centre = this.window.length; // index in the window, with a fraction, of the next output sample
  }

  #taps(fraction, cutoff) {
    const taps = new Float32Array(2 * this.half);
    for (let i = 0; i < taps.length; i++) {
      const x = i - this.half + 1 - fraction;
      const angle = Math.PI * cutoff * x;
      const sinc = angle === 0 ? 1 : Math.sin(angle) / angle;
      const hann = 0.5 + 0.5 * Math.cos((Math.PI * x) / this.half);
      taps[i] = cutoff * sinc * hann;
    }
    const sum = taps.reduce((total, tap) => total + tap, 0);
    return taps.map((tap) => tap / sum); // every phase passes a steady level unchanged
  }

  /** Take QUANTUM samples and pass each output sample that they complete to `emit`. */
  push(input, emit) {
    this.window.copyWithin(0, input.length);
    this.window.set(input, this.window.length - input.length);
    this.centre -= input.length;
    while (this.centre + this.half < this.window.length) {
      const whole = Math.floor(this.centre);
      const taps = this.table[Math.round((this.centre - whole) * PHASES)];
      const first = whole - this.half + 1;
      let sample = 0;
      for (let i = 0; i < taps.length; i++) sample += taps[i] * this.window[first + i];
      emit(sample);
      this.centre += this.step;
    }
  }
}

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.resampler = new Resampler(sampleRate, RATE);
    this.#startFrame();
  }

  #startFrame() {
    this.frame = new Int16Array(FRAME);
    this.filled = 0;
    this.energy = 0;
  }

  process([[input]]) {
    // A microphone that is still starting has no channel at all.
    if (input) this.resampler.push(input, (sample) => this.#add(sample));
    return true;
  }

  #add(sample) {
    const clipped = Math.max(-1, Math.min(1, sample));
    this.frame[this.filled++] = Math.round(clipped * 32767);
    this.energy += clipped * clipped;
    if (this.filled < FRAME) return;
    const message = { pcm: this.frame.buffer, level: Math.sqrt(this.energy / FRAME) };
    this.port.postMessage(message, [message.pcm]);
    this.#startFrame();
  }
}

registerProcessor("capture", Capture);
