// Estimates which part of a reply's text was heard, to show it at once. The server knows the time of each word, and sends
// the exact text later.

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
    const letter = this.#letter(played, rate);
    return letter === this.text.length ? letter : this.text.lastIndexOf(" ", letter) + 1;
  }

  /** Return the text up to the end of the word that is being spoken. */
  begun(played, rate) {
    const letter = this.#letter(played, rate);
    if (letter === 0 && !(played > this.pieces[0]?.sample)) return "";
    const end = this.text.indexOf(" ", Math.max(1, letter)); // a delta begins with the blank before it
    return end < 0 ? this.text : this.text.slice(0, end);
  }

  #letter(played, rate) {
    const next = this.pieces.findIndex(({ sample }) => sample > played);
    const from = next < 0 ? this.pieces.at(-1) : this.pieces[next - 1]; // none before the first: a filler plays
    if (!from || played <= 0) return 0;
    const to = next < 0 ? this.#end(from, rate) : this.pieces[next];
    const share = to.sample > from.sample ? Math.min(1, (played - from.sample) / (to.sample - from.sample)) : 1;
    return Math.round(from.letter + share * (to.letter - from.letter));
  }

  // While more audio is coming, the last piece is longer than the audio received for it.
  #end(last, rate) {
    const letters = this.text.length - last.letter;
    const guess = this.ended ? 0 : last.sample + (letters / LETTERS_PER_SECOND) * rate;
    return { letter: this.text.length, sample: Math.max(this.received, guess) };
  }
}
