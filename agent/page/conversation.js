// What the page does with each event of the server, and with what is typed: who has the floor, and what is asked for.
// No DOM, no socket, no clock, as in speech.js, which does the same for the agent's voice.

import { itemCreate } from "./history.js";
import { responseProblem, serverProblem } from "./problems.js";
import { HOUSEKEEPING, Speech } from "./speech.js";

const ASKING = `${HOUSEKEEPING}response.create`;
const ACTIVE = "conversation_already_has_active_response";

export class Conversation {
  /** `given`: what speech.js is given, and `showState(state)`. */
  constructor(given) {
    const { history, send, player, transcript, showState, showLevel, showProblem } = given;
    Object.assign(this, { history, send, player, transcript, showState, showLevel, showProblem });
    this.speech = new Speech(given);
    this.begun = false; // the server has ever greeted us
    this.#forget();
  }

  // What holds for one socket only.
  #forget() {
    this.ready = false;
    this.userSpeaking = false;
    this.awaiting = false; // the user has finished, and no response has begun
    this.response = null; // id of the response in progress
    this.owed = false; // a response has to be asked for when this one is done: it does not answer what was typed
  }

  get state() {
    if (!this.ready) return this.begun ? "reconnecting" : "connecting";
    if (this.userSpeaking) return "user";
    if (this.speech.audible) return "agent";
    return this.awaiting || this.response ? "thinking" : "listening";
  }

  receive(event) {
    this.#react(event);
    this.showState(this.state);
  }

  /** React to a report of the player. */
  played(report) {
    this.speech.played(report);
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
        this.speech.silence();
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
      case "input_audio_buffer.committed": // places, so that the reply can only come below it
        this.history.place("user", event.item_id);
        this.transcript.place("user", event.item_id);
        break;
      case "conversation.item.input_audio_transcription.delta":
        this.transcript.append("user", event.item_id, event.delta);
        break;
      case "conversation.item.input_audio_transcription.completed":
        this.#said(event.item_id, event.transcript);
        if (!event.transcript.trim()) this.awaiting = false; // a noise; nobody answers it
        break;
      case "conversation.item.input_audio_transcription.failed":
        this.transcript.settle("user", event.item_id, "(not understood)");
        break;
      case "response.created":
        this.awaiting = false;
        this.response = event.response.id;
        this.speech.begin();
        this.showProblem(null);
        if (this.owed) this.#cancel();
        break;
      case "response.output_audio_transcript.delta":
      case "response.output_text.delta":
        this.speech.text(event);
        break;
      case "response.output_audio.delta":
        this.speech.audio(event);
        break;
      case "response.output_audio.done":
        this.speech.audioDone(event.item_id);
        break;
      case "response.done":
        this.#responseDone(event.response);
        break;
      case "conversation.item.retrieved":
        this.speech.retrieved(event.item);
        break;
      case "rejoinder.trace":
        this.speech.traced(event);
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
    this.speech.silence();
    this.speech.end();
    this.transcript.rest("user"); // the agent's words are cut when the player has told where
    this.#forget();
  }

  #said(id, text) {
    this.history.write("user", id, text);
    this.transcript.settle("user", id, text);
  }

  /** The user has typed something. */
  type(text) {
    const id = `typed_${Date.now().toString(36)}_${this.history.items.size}`;
    this.#said(id, text);
    this.speech.silence();
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
    this.speech.silence();
  }

  #responseDone({ id, status, status_details: details }) {
    if (id === this.response) this.response = null;
    if (status === "cancelled") this.speech.silence();
    if (status === "failed") this.showProblem(responseProblem(details));
    this.speech.end();
    if (this.owed) this.#ask();
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
}
