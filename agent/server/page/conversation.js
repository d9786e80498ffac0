// Handles the server's events and the user's typed text: whose turn it is, and which responses to request. It has no
// DOM, no socket and no clock: `wait` is an argument. speech.js handles the agent's voice in the same way.

import { itemCreate } from "./history.js";
import { responseProblem, serverProblem } from "./problems.js";
import { HOUSEKEEPING, Speech } from "./speech.js";

const ASKING = `${HOUSEKEEPING}response.create`;
const ACTIVE = "conversation_already_has_active_response";
const NOT_FOUND = "conversation_not_found"; // the page then sends the new conversation what was said
const PATIENCE = 500; // milliseconds to wait for the player's last report

export class Conversation {
  /** `given`: the arguments of speech.js, `showState(state)`, and `wait(milliseconds)`, which returns a promise. */
  constructor(given) {
    const { history, player, transcript, showState, showLevel, showProblem, wait } = given;
    Object.assign(this, { history, player, transcript, showState, showLevel, showProblem, wait });
    this.send = (event) => {
      if (this.ready) given.send(event);
      else if (this.session) this.unsent.push(event);
    };
    this.speech = new Speech({ ...given, send: this.send });
    this.session = null; // id of the server's session that has this conversation
    this.ready = false; // whether the server takes events
    this.#forget();
  }

  // The state for one session of the server.
  #forget() {
    this.unsent = []; // events to send when the server takes events again
    this.typed = new Map(); // item id -> the event that creates it, until the server acknowledges it
    this.due = null; // id of the last typed item, until a response to it has begun
    this.asked = this.heard = false; // whether that response was requested, and over this socket
    this.userSpeaking = false;
    this.awaiting = false; // the user has finished, and no response has begun
    this.response = null; // id of the response in progress
    this.owed = false; // whether to request a response after this one, which does not answer the typed text
  }

  get state() {
    if (!this.ready) return this.session ? "reconnecting" : "connecting";
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
    if (report.flushed) this.settled?.();
    this.showState(this.state);
  }

  #react(event) {
    switch (event.type) {
      case "session.created":
        this.#begin(event.session.id);
        break;
      case "conversation.item.added":
        this.typed.delete(event.item.id);
        this.#told(event.item);
        break;
      case "rejoinder.resumed":
        if (!event.after && event.item_id) this.speech.retold(event.item_id);
        break;
      case "input_audio_buffer.speech_started":
        this.userSpeaking = true;
        this.awaiting = false;
        this.speech.silence();
        break;
      case "rejoinder.output_paused": // the user may have begun to speak; speech_started or output_resumed follows
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
      case "input_audio_buffer.committed": // reserves the entry's place, so that the reply comes below it
        this.history.place("user", event.item_id);
        this.transcript.place("user", event.item_id);
        break;
      case "conversation.item.input_audio_transcription.delta":
        this.transcript.append("user", event.item_id, event.delta);
        break;
      case "conversation.item.input_audio_transcription.completed":
        this.#said(event.item_id, event.transcript);
        if (!event.transcript.trim()) this.awaiting = false; // noise; it gets no answer
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
        else if (this.asked) this.due = null; // else it answers the turn before
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
        if (event.item.id === this.due && !this.heard && !this.owed) this.#ask();
        break;
      case "rejoinder.trace":
        this.speech.traced(event);
        break;
      case "error":
        this.#failed(event.error);
        break;
    }
  }

  // The server resumes the conversation, or it has a new one: at first, or because it has lost the old one.
  #begin(id) {
    this.showProblem(null);
    if (id === this.session) this.#resume();
    else if (!this.session) this.#tell(id);
    else this.settle().then(() => this.#tell(id));
  }

  // The server first sends the events that the page missed, then the answer to this event. Only then is it clear
  // whether text that was typed just before the break gets an answer.
  #resume() {
    const { unsent, typed } = this;
    this.ready = true;
    this.unsent = [];
    unsent.forEach(this.send);
    typed.forEach((event) => this.send({ ...event, event_id: `${HOUSEKEEPING}again` }));
    if (this.due) {
      this.send({ type: "conversation.item.retrieve", item_id: this.due, event_id: `${HOUSEKEEPING}caught_up` });
    }
  }

  // An item that may be unknown here: the server sends all items if it has not kept the events that the page missed.
  #told({ id, role, content }) {
    const text = content?.map((part) => part.transcript ?? part.text ?? "").join(" ").trim();
    if (!text || this.history.items.has(id) || !(role === "user" || role === "assistant")) return;
    this.#said(id, text, role === "user" ? "user" : "agent");
  }

  #tell(id) {
    this.#forget();
    this.session = id;
    this.ready = true;
    this.history.retell().forEach(this.send);
    this.due = this.history.unanswered;
    if (this.due) this.#ask();
    this.showState(this.state);
  }

  /** The socket broke off. The received part of the answer plays on: the rest may still come. */
  lost() {
    this.ready = this.heard = false;
    this.settled = null;
  }

  /** End the conversation. Resolves when the player has reported how much was heard, or after PATIENCE. */
  settle() {
    this.ready = false;
    this.speech.silence();
    this.speech.end();
    this.transcript.rest("user"); // the agent's words are cut when the player has reported its position
    return Promise.race([new Promise((resolve) => (this.settled = resolve)), this.wait(PATIENCE)]);
  }

  #said(id, text, role = "user") {
    this.history.write(role, id, text);
    this.transcript.settle(role, id, text);
  }

  /** Send text that the user typed. */
  type(text) {
    const id = `typed_${Date.now().toString(36)}_${this.history.items.size}`;
    this.#said(id, text);
    this.speech.silence();
    if (!this.session) return; // it is sent with the history
    const event = itemCreate("user", id, text);
    this.typed.set(id, event);
    this.due = id;
    this.asked = this.heard = false;
    if (!this.ready) return;
    this.send(event);
    this.#ask();
    this.showState(this.state);
  }

  #ask() {
    this.owed = Boolean(this.response);
    if (this.owed) return this.#cancel();
    this.awaiting = this.asked = this.heard = true;
    this.send({ type: "response.create", event_id: ASKING });
  }

  #cancel() {
    this.send({ type: "response.cancel" });
  }

  /** Stop the answer, as the user asked. */
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
      this.owed = code === ACTIVE; // another response has begun meanwhile, or is about to
      if (this.owed && this.response) this.#cancel();
      this.awaiting = this.owed;
    }
    const quiet = id?.startsWith(HOUSEKEEPING) || code === NOT_FOUND;
    if (quiet) console.warn(message);
    else this.showProblem(serverProblem(message));
  }
}
