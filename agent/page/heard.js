// Which part of a reply's text had been heard when it was cut off: an estimate to show at once, until the server,
// which knows the words' times, tells exactly.

const LETTERS_PER_SECOND = 15; // ordinary English speech

export class SpokenText {
  constructor() {
    this.text = "";
    this.received = 0; // samples
    this.ended = false;
    this.pieces = []; // {letter, sample}: a piece of text starts where the audio that comes next starts
  }

  addText(delta) {
    this.pieces.push({ letter: this.text.length, sample: this.received });
    this.text += delta;
  }

  addAudio(samples) {
    this.received += samples;
  }

  /** Return how many letters were spoken within the first `played` samples, never ending inside a word. */
  heardLetters(played, rate) {
    const next = this.pieces.findIndex(({ sample }) => sample > played);
    const from = this.pieces.at(next < 0 ? -1 : next - 1);
    if (!from || played === 0) return 0;
    const to = next < 0 ? this.#end(from, rate) : this.pieces[next];
    const share = to.sample > from.sample ? Math.min(1, (played - from.sample) / (to.sample - from.sample)) : 1;
    const letter = Math.round(from.letter + share * (to.letter - from.letter));
    if (letter === this.text.length) return letter;
    return this.text.lastIndexOf(" ", letter) + 1;
  }

  // While audio is still to come, the last piece lasts longer than what has arrived of it.
  #end(last, rate) {
    const letters = this.text.length - last.letter;
    const guess = this.ended ? 0 : last.sample + (letters / LETTERS_PER_SECOND) * rate;
    return { letter: this.text.length, sample: Math.max(this.received, guess) };
  }
}
