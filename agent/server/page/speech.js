// The agent's side of the conversation: its text, its audio through the player, and how much of both was heard when it
// is interrupted. It has no DOM, no socket and no clock: the views, the player, `send` and `now` are arguments.

import { RATE } from "./audio.js";
import { SpokenText } from "./heard.js";
import { tooLongProblem } from "./problems.js";
import { fromBase64 } from "./session.js";

/** Prefix of the ids of events whose errors are not shown to the user. */
export const HOUSEKEEPING = "page_";

export class Speech {
  constructor({ history, send, player, now, transcript, showTrace, showLevel, showProblem }) {
    Object.assign(this, { history, send, player, now, transcript, showTrace, showLevel, showProblem });
    this.spoken = new Map(); // item id -> SpokenText, for items that may still be interrupted
    this.silenced = new Set(); // interrupted items; their audio that still arrives is dropped
    this.audible = false; // the player has something to play
    // {id, letters, parts}: an item that the server sends again, the text received before, and its audio here: part
    // {ms, start} begins after ms, with the item's position start
    this.repeated = null;
    this.newest = null; // {id, heard, rendered, at}: the item played last, in samples, and the time of that report
    this.begin();
    this.more = false; // whether the response in progress may have more audio
  }

  /** A response begins. */
  begin() {
    this.more = true;
    this.silenced.clear();
    this.timing = { trace: null, arrived: null, player: null }; // see #showTiming
  }

  /** The response has no more audio. */
  end() {
    this.more = false;
    this.player.end();
    if (!this.audible) this.#settleAll();
  }

  /**
   * The server has not kept all events that the page missed, and sends this item again: its whole text, and the audio
   * that the page has not received. Positions in its audio count from there.
   */
  resent(id, start) {
    const { text, received } = this.#spokenText(id);
    // What was received before may still wait in the player, with the positions of an earlier repeat.
    const before = this.repeated?.id === id ? this.repeated.parts : [{ ms: 0, start: 0 }];
    this.repeated = { id, letters: text.length, parts: [...before, { ms: toMs(received), start }] };
  }

  /** Return {item, ms}, how much of the item played last was heard, null before the first one. */
  position() {
    if (!this.newest) return null;
    const { id, heard, rendered, at } = this.newest;
    const ms = toMs(Math.min(rendered, heard + ((this.now() - at) * RATE) / 1000)); // what was under way has arrived
    const part = this.repeated?.id === id ? this.repeated.parts.findLast((each) => each.ms <= ms) : { ms: 0, start: 0 };
    return { item: id, ms: ms - part.ms + part.start };
  }

  #follow(id, rendered) {
    const heard = Math.max(0, rendered - this.player.underway());
    this.newest = { id, heard, rendered, at: this.now() };
    return heard;
  }

  text({ item_id: id, delta }) {
    if (this.silenced.has(id)) return;
    const known = this.repeated?.id === id ? this.repeated.letters : 0;
    if (known) this.repeated.letters = 0;
    this.#spokenText(id).addText(delta.slice(known));
    this.history.place("agent", id);
    this.transcript.place("agent", id); // its words appear as they are played
  }

  audio({ item_id: id, delta }) {
    if (this.silenced.has(id)) return;
    this.timing.arrived ??= this.now();
    const audio = fromBase64(delta);
    this.#spokenText(id).addAudio(audio.byteLength / 2);
    this.player.play(id, audio);
    this.audible = true;
  }

  audioDone(id) {
    if (this.silenced.has(id)) return; // the server has only finished sending it
    const spoken = this.spoken.get(id);
    if (spoken) spoken.ended = true;
    this.player.end();
  }

  #spokenText(id) {
    if (!this.spoken.has(id)) this.spoken.set(id, new SpokenText());
    return this.spoken.get(id);
  }

  // All audio was played, so no text can be cut any more.
  #settleAll() {
    for (const id of [...this.spoken.keys()]) this.#settle(id);
  }

  #settle(id) {
    const text = this.spoken.get(id)?.text;
    this.spoken.delete(id);
    if (text === undefined) return;
    this.history.write("agent", id, text);
    this.transcript.settle("agent", id, text);
  }

  /**
   * Stop playback. The player reports how much of each item was heard, and #cut continues from there. Before and after
   * that, more audio of these items may arrive, sent before the server received the interruption.
   */
  silence() {
    this.player.flush();
    for (const [id, { received }] of this.spoken) {
      this.silenced.add(id);
      if (!received) this.#cutAfter(id, 0); // the player has none of its audio
    }
  }

  #cutAfter(id, letters) {
    const { text } = this.#spokenText(id);
    this.spoken.delete(id);
    this.history.write("agent", id, text.slice(0, letters));
    this.transcript.cut(id, text, letters);
  }

  /** React to a report of the player (see playback.js). */
  played(report) {
    if (report.playing) this.#playing(report);
    else if (report.finished) {
      this.#follow(report.finished, report.samples);
      this.transcript.mark(report.finished, { playedMs: toMs(report.samples) });
      this.#settle(report.finished);
    } else if (report.flushed) {
      report.flushed.forEach(({ item, samples }) => this.#cut(item, samples));
      this.#fallSilent();
    } else if (report.idle) this.#fallSilent();
    else if (report.overflow) this.showProblem(tooLongProblem());
  }

  #playing({ playing: id, samples, level }) {
    this.audible = true;
    this.showLevel(level);
    this.transcript.mark(id, { playedMs: toMs(samples) });
    const heard = this.#follow(id, samples);
    const spoken = this.spoken.get(id);
    if (!spoken) return;
    this.transcript.reveal(id, spoken.begun(heard, RATE));
    if (this.timing.player !== null || this.timing.arrived === null) return;
    this.timing.player = Math.max(0, this.now() - this.timing.arrived - (1000 * heard) / RATE);
    this.#showTiming();
  }

  #fallSilent() {
    this.audible = false;
    this.showLevel(0);
    if (!this.more) this.#settleAll();
  }

  #cut(id, rendered) {
    const samples = this.#follow(id, rendered);
    this.newest.rendered = samples; // the rest was flushed
    this.transcript.mark(id, { playedMs: toMs(samples) });
    this.#cutAfter(id, this.#spokenText(id).heardLetters(samples, RATE));
    const before = this.repeated?.id === id ? this.repeated.parts.at(-1).ms : 0;
    const played = Math.max(0, toMs(samples) - before);
    this.#housekeep({ type: "conversation.item.truncate", content_index: 0, audio_end_ms: played }, id);
    this.#housekeep({ type: "conversation.item.retrieve" }, id); // its transcript now has exactly the heard words
  }

  #housekeep(event, id) {
    this.send({ ...event, item_id: id, event_id: `${HOUSEKEEPING}${event.type}_${id}` });
  }

  /** Show the words of an interrupted item that were heard, as the server reports them. */
  retrieved({ id, content }) {
    const heard = content?.find((part) => typeof part.transcript === "string")?.transcript;
    if (heard === undefined || !this.transcript.recut(id, heard)) return;
    this.history.write("agent", id, heard);
  }

  /** Show the server's latency trace. */
  traced(trace) {
    this.timing.trace = trace;
    this.#showTiming();
  }

  // The server's trace ends when it sends. The page adds the player's wait before playback.
  #showTiming() {
    const { trace, player } = this.timing;
    if (!trace) return;
    const parts = player === null ? trace.parts : [...trace.parts, { name: "player", ms: player }];
    this.showTrace({ ...trace, parts });
  }
}

function toMs(samples) {
  return Math.floor((samples * 1000) / RATE); // rounded down: the server refuses a position after the end
}
