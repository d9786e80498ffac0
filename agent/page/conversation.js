// What the page does with each event of the server and each report of the player. No DOM, no socket, no clock: the
// views, the player and `send` are handed in.

import { RATE } from "./audio.js";
import { SpokenText } from "./heard.js";
import { responseProblem, serverProblem, tooLongProblem } from "./problems.js";
import { fromBase64 } from "./session.js";

const HOUSEKEEPING = "page_"; // starts the id of events whose failure is none of the user's business

export class Conversation {
  constructor({ send, player, transcript, showTrace, showState, showLevel, showProblem }) {
    Object.assign(this, { send, player, transcript, showTrace, showState, showLevel, showProblem });
    this.ready = false;
    this.userSpeaking = false;
    this.awaiting = false; // the user has finished, and no response has begun
    this.response = null; // id of the response in progress
    this.audible = false; // the player has something to play
    this.spoken = new Map(); // item id -> SpokenText, of the items that may still be cut off
    this.silenced = new Set(); // items cut off; audio of theirs that was already on its way is dropped
  }

  get state() {
    if (!this.ready) return "connecting";
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
        this.ready = true;
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
        this.transcript.place("user", event.item_id); // so that the reply can only come below it
        break;
      case "conversation.item.input_audio_transcription.delta":
        this.transcript.append("user", event.item_id, event.delta);
        break;
      case "conversation.item.input_audio_transcription.completed":
        this.transcript.settle("user", event.item_id, event.transcript);
        if (!event.transcript.trim()) this.awaiting = false; // a noise; nobody answers it
        break;
      case "conversation.item.input_audio_transcription.failed":
        this.transcript.settle("user", event.item_id, "(not understood)");
        break;
      case "response.created":
        this.awaiting = false;
        this.response = event.response.id;
        this.silenced.clear();
        this.showProblem(null);
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
        this.showTrace(event);
        break;
      case "error":
        if (event.error.event_id?.startsWith(HOUSEKEEPING)) console.warn(event.error.message);
        else this.showProblem(serverProblem(event.error.message));
        break;
    }
  }

  #spokenText(id) {
    if (!this.spoken.has(id)) this.spoken.set(id, new SpokenText());
    return this.spoken.get(id);
  }

  #text({ item_id: id, delta }) {
    if (this.silenced.has(id)) return;
    this.#spokenText(id).addText(delta);
    this.transcript.append("agent", id, delta);
  }

  #audio({ item_id: id, delta }) {
    if (this.silenced.has(id)) return;
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
  }

  // Nothing is left to be played, so whatever text is there will not be cut any more.
  #settleAll() {
    for (const id of this.spoken.keys()) this.transcript.settle("agent", id);
    this.spoken.clear();
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
    this.spoken.delete(id);
    this.transcript.cut(id, letters);
  }

  /** React to a report of the player (see playback.js). */
  played(report) {
    if (report.playing) {
      this.audible = true;
      this.transcript.mark(report.playing, { playedMs: toMs(report.samples) });
      this.showLevel(report.level);
    } else if (report.finished) {
      this.transcript.mark(report.finished, { playedMs: toMs(report.samples) });
      this.transcript.settle("agent", report.finished);
      this.spoken.delete(report.finished);
    } else if (report.flushed) {
      report.flushed.forEach(({ item, samples }) => this.#cut(item, samples));
      this.#fallSilent();
    } else if (report.idle) this.#fallSilent();
    else if (report.overflow) this.showProblem(tooLongProblem());
    this.showState(this.state);
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
    if (heard !== undefined) this.transcript.recut(id, heard);
  }
}

function toMs(samples) {
  return Math.floor((samples * 1000) / RATE); // down: the server refuses to cut after the end
}
