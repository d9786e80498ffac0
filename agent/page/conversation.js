// What the page does with each event of the server and each report of the player. No DOM, no socket, no clock: the
// views, the player, `send` and `now` (milliseconds) are handed in.

import { RATE } from "./audio.js";
import { SpokenText } from "./heard.js";
import { itemCreate } from "./history.js";
import { responseProblem, serverProblem, tooLongProblem } from "./problems.js";
import { fromBase64 } from "./session.js";

const HOUSEKEEPING = "page_"; // starts the id of events whose failure is none of the user's business
const ASKING = `${HOUSEKEEPING}response.create`;
const ACTIVE = "conversation_already_has_active_response";

export class Conversation {
  constructor({ history, send, player, now, transcript, showTrace, showState, showLevel, showProblem }) {
    Object.assign(this, { history, send, player, now, transcript, showTrace, showState, showLevel, showProblem });
    this.spoken = new Map(); // item id -> SpokenText, of the items that may still be cut off
    this.silenced = new Set(); // items cut off; audio of theirs that was already on its way is dropped
    this.audible = false; // the player has something to play
    this.begun = false; // the server has ever greeted us
    this.#forget();
  }

  // What holds for one socket only.
  #forget() {
    this.ready = false;
    this.userSpeaking = false;
    this.awaiting = false; // the user has finished, and no response has begun
    this.response = null; // id of the response in progress
    this.timing = { trace: null, arrived: null, player: null }; // of that response, see #showTiming
    this.owed = false; // a response has to be asked for when this one is done: it does not answer what was typed
  }

  get state() {
    if (!this.ready) return this.begun ? "reconnecting" : "connecting";
    if (this.userSpeaking) return "user";
    if (this.audible) return "agent";
    return this.awaiting || this.response ? "thinking" : "listening";
  }

  receive(event) {
    this.#react(event);
    this.showState(this.state);
  }

  #react(event) {
    switch (event.type) {
      case "session.created":
        this.#begin();
        break;
      case "input_audio_buffer.speech_started":
        this.userSpeaking = true;
        this.awaiting = false;
        this.#silence();
        break;
      case "rejoinder.output_paused": // somebody may have begun to speak: either event around this one follows
        this.player.hold();
        this.showLevel(0);
        break;
      case "rejoinder.output_resumed":
        this.player.release();
        break;
      case "input_audio_buffer.speech_stopped":
        this.userSpeaking = false;
        this.awaiting = true;
        break;
      case "input_audio_buffer.committed":
        this.#place("user", event.item_id); // so that the reply can only come below it
        break;
      case "conversation.item.input_audio_transcription.delta":
        this.transcript.append("user", event.item_id, event.delta);
        break;
      case "conversation.item.input_audio_transcription.completed":
        this.#settle("user", event.item_id, event.transcript);
        if (!event.transcript.trim()) this.awaiting = false; // a noise; nobody answers it
        break;
      case "conversation.item.input_audio_transcription.failed":
        this.transcript.settle("user", event.item_id, "(not understood)");
        break;
      case "response.created":
        this.awaiting = false;
        this.response = event.response.id;
        this.timing = { trace: null, arrived: null, player: null };
        this.silenced.clear();
        this.showProblem(null);
        if (this.owed) this.#cancel();
        break;
      case "response.output_audio_transcript.delta":
      case "response.output_text.delta":
        this.#text(event);
        break;
      case "response.output_audio.delta":
        this.#audio(event);
        break;
      case "response.output_audio.done":
        this.#audioDone(event.item_id);
        break;
      case "response.done":
        this.#responseDone(event.response);
        break;
      case "conversation.item.retrieved":
        this.#retrieved(event.item);
        break;
      case "rejoinder.trace":
        this.timing.trace = event;
        this.#showTiming();
        break;
      case "error":
        this.#failed(event.error);
        break;
    }
  }

  // A server that has lost the conversation is told of it, and at first there is nothing to tell.
  #begin() {
    this.ready = this.begun = true;
    this.history.retell().forEach(this.send);
    if (this.history.unanswered) this.#ask();
    this.showProblem(null);
  }

  /** The socket broke off: whatever the server was about to say will not come. */
  lost() {
    this.#silence();
    this.transcript.rest("user"); // the agent's words are cut when the player has told where
    this.#forget();
  }

  /** The user has typed something. */
  type(text) {
    const id = `typed_${Date.now().toString(36)}_${this.history.items.size}`;
    this.#settle("user", id, text);
    this.#silence();
    if (!this.ready) return; // the history will tell it
    this.send(itemCreate("user", id, text));
    this.#ask();
    this.showState(this.state);
  }

  #ask() {
    this.owed = Boolean(this.response);
    if (this.owed) return this.#cancel();
    this.awaiting = true;
    this.send({ type: "response.create", event_id: ASKING });
  }

  #cancel() {
    this.send({ type: "response.cancel" });
  }

  /** The user wants no more of this answer. */
  interrupt() {
    if (this.response) this.#cancel();
    this.#silence();
  }

  #failed({ message, code, event_id: id }) {
    if (id === ASKING) {
      this.owed = code === ACTIVE; // that one began while we asked, or is just about to
      if (this.owed && this.response) this.#cancel();
      this.awaiting = this.owed;
    }
    if (id?.startsWith(HOUSEKEEPING)) console.warn(message);
    else this.showProblem(serverProblem(message));
  }

  #place(role, id) {
    this.history.place(role, id);
    this.transcript.place(role, id);
  }

  #settle(role, id, text) {
    this.history.write(role, id, text);
    this.transcript.settle(role, id, text);
  }

  #spokenText(id) {
    if (!this.spoken.has(id)) this.spoken.set(id, new SpokenText());
    return this.spoken.get(id);
  }

  #text({ item_id: id, delta }) {
    if (this.silenced.has(id)) return;
    this.#spokenText(id).addText(delta);
    this.#place("agent", id); // its words appear as they are played
  }

  #audio({ item_id: id, delta }) {
    if (this.silenced.has(id)) return;
    this.timing.arrived ??= this.now();
    const audio = fromBase64(delta);
    this.#spokenText(id).addAudio(audio.byteLength / 2);
    this.player.play(id, audio);
    this.audible = true;
  }

  #audioDone(id) {
    if (this.silenced.has(id)) return; // only the sending is done
    const spoken = this.spoken.get(id);
    if (spoken) spoken.ended = true;
    this.player.end();
  }

  #responseDone({ id, status, status_details: details }) {
    if (id === this.response) this.response = null;
    this.player.end();
    if (status === "cancelled") this.#silence();
    if (status === "failed") this.showProblem(responseProblem(details));
    if (!this.audible) this.#settleAll();
    if (this.owed) this.#ask();
  }

  // Nothing is left to be played, so whatever text is there will not be cut any more.
  #settleAll() {
    for (const id of [...this.spoken.keys()]) this.#whole(id);
  }

  #whole(id) {
    const text = this.spoken.get(id)?.text;
    this.spoken.delete(id);
    if (text !== undefined) this.#settle("agent", id, text);
  }

  // The player answers with what was heard of each item, and #cut goes on from there. Until then, and after, more audio
  // of these items may arrive, which was under way when the server heard the user.
  #silence() {
    this.player.flush();
    for (const [id, { received }] of this.spoken) {
      this.silenced.add(id);
      if (!received) this.#hush(id, 0); // the player does not know of it
    }
  }

  #hush(id, letters) {
    const { text } = this.#spokenText(id);
    this.spoken.delete(id);
    this.history.write("agent", id, text.slice(0, letters));
    this.transcript.cut(id, text, letters);
  }

  /** React to a report of the player (see playback.js). */
  played(report) {
    if (report.playing) this.#playing(report);
    else if (report.finished) {
      this.transcript.mark(report.finished, { playedMs: toMs(report.samples) });
      this.#whole(report.finished);
    } else if (report.flushed) {
      report.flushed.forEach(({ item, samples }) => this.#cut(item, samples));
      this.#fallSilent();
    } else if (report.idle) this.#fallSilent();
    else if (report.overflow) this.showProblem(tooLongProblem());
    this.showState(this.state);
  }

  #playing({ playing: id, samples, level }) {
    this.audible = true;
    this.showLevel(level);
    this.transcript.mark(id, { playedMs: toMs(samples) });
    const heard = samples - this.player.underway();
    const spoken = this.spoken.get(id);
    if (!spoken) return;
    this.transcript.reveal(id, spoken.begun(heard, RATE));
    if (this.timing.player !== null || this.timing.arrived === null) return;
    this.timing.player = Math.max(0, this.now() - this.timing.arrived - (1000 * heard) / RATE);
    this.#showTiming();
  }

  // The server's trace ends when it sends; what the player waits for before it makes a sound is ours to add.
  #showTiming() {
    const { trace, player } = this.timing;
    if (!trace) return;
    const parts = player === null ? trace.parts : [...trace.parts, { name: "player", ms: player }];
    this.showTrace(parts);
  }

  #fallSilent() {
    this.audible = false;
    this.showLevel(0);
    if (!this.response) this.#settleAll();
  }

  #cut(id, rendered) {
    const samples = Math.max(0, rendered - this.player.underway());
    this.transcript.mark(id, { playedMs: toMs(samples) });
    this.#hush(id, this.#spokenText(id).heardLetters(samples, RATE));
    this.#housekeep({ type: "conversation.item.truncate", content_index: 0, audio_end_ms: toMs(samples) }, id);
    this.#housekeep({ type: "conversation.item.retrieve" }, id); // its transcript is now what was heard, to the word
  }

  #housekeep(event, id) {
    this.send({ ...event, item_id: id, event_id: `${HOUSEKEEPING}${event.type}_${id}` });
  }

  #retrieved({ id, content }) {
    const heard = content?.find((part) => typeof part.transcript === "string")?.transcript;
    if (heard === undefined || !this.transcript.recut(id, heard)) return;
    this.history.write("agent", id, heard);
  }
}

function toMs(samples) {
  return Math.floor((samples * 1000) / RATE); // down: the server refuses to cut after the end
}
