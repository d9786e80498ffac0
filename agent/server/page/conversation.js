// Handles the server's events and the user's typed text: whose turn it is, and which responses to request. It has no
// DOM, no socket and no clock: `wait` is an argument. speech.js handles the agent's voice in the same way.

import { itemCreate } from "./history.js";
import { responseProblem, serverProblem } from "./problems.js";
import { HOUSEKEEPING, Speech } from "./speech.js";

const REQUEST = `${HOUSEKEEPING}response.create`;
const ACTIVE = "conversation_already_has_active_response";
const NOT_FOUND = "conversation_not_found"; // the page then sends the history to the new conversation
const REPORT_TIMEOUT = 500; // milliseconds to wait for the player's last report

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
    this.beginning = null; // id of a new session that gets the history as soon as playback has ended
    this.ready = false; // whether the server takes events
    this.#forget();
  }

  // The state for one session of the server.
  #forget() {
    this.unsent = []; // events to send when the server takes events again
    this.typed = new Map(); // item id -> the event that creates it, until the server acknowledges it
    this.unanswered = null; // id of the last typed item, until a response to it has begun
    this.requested = false; // whether that response was requested
    this.requestedHere = false; // whether it was requested over this socket
    this.userSpeaking = false;
    this.awaiting = false; // the user has finished, and no response has begun
    this.response = null; // id of the response in progress
    this.requestLater = false; // whether to request a response after this one, which does not answer the typed text
  }

  get state() {
    if (!this.ready) return this.session ? "reconnecting" : "connecting";
    if (this.userSpeaking) return "user";
    if (this.speech.audible) return "agent";
    return this.awaiting || this.response ? "thinking" : "listening";
  }

  receive(event) {
    this.#handle(event);
    this.showState(this.state);
  }

  /** React to a report of the player. */
  played(report) {
    this.speech.played(report);
    if (report.flushed) this.resolveSettled?.();
    this.showState(this.state);
  }

  #handle(event) {
    switch (event.type) {
      case "session.created":
        this.#begin(event.session.id);
        break;
      case "conversation.item.added":
        this.typed.delete(event.item.id);
        this.#addMissedItem(event.item);
        break;
      case "rejoinder.resumed":
        if (!event.after && event.item_id) this.speech.resent(event.item_id, event.audio_start_ms);
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
      case "input_audio_buffer.committed": // reserves the entry's place, so that the reply is shown below it
        this.history.place("user", event.item_id);
        this.transcript.place("user", event.item_id);
        break;
      case "conversation.item.input_audio_transcription.delta":
        this.transcript.append("user", event.item_id, event.delta);
        break;
      case "conversation.item.input_audio_transcription.completed":
        this.#write(event.item_id, event.transcript);
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
        if (this.requestLater) this.#cancel();
        else if (this.requested) this.unanswered = null; // else it answers the turn before
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
        if (event.item.id === this.unanswered && !this.requestedHere && !this.requestLater) this.#requestResponse();
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
    else if (!this.session) this.#sendHistory(id);
    else {
      this.beginning = id;
      this.settle().then(() => this.beginning === id && this.#sendHistory(id));
    }
  }

  // The server first sends the events that the page missed, then the answer to this event. Only then is it clear
  // whether text that was typed just before the break gets an answer.
  #resume() {
    const { unsent, typed } = this;
    this.ready = true;
    this.unsent = [];
    unsent.forEach(this.send);
    typed.forEach((event) => this.send({ ...event, event_id: `${HOUSEKEEPING}again` }));
    if (this.unanswered) {
      this.send({ type: "conversation.item.retrieve", item_id: this.unanswered, event_id: `${HOUSEKEEPING}caught_up` });
    }
  }

  // An item that may be unknown here: the server sends all items if it has not kept the events that the page missed.
  #addMissedItem({ id, role, content }) {
    const text = content?.map((part) => part.transcript ?? part.text ?? "").join(" ").trim();
    if (!text || this.history.items.has(id) || !(role === "user" || role === "assistant")) return;
    this.#write(id, text, role === "user" ? "user" : "agent");
  }

  #sendHistory(id) {
    this.#forget();
    this.session = id;
    this.ready = true;
    this.history.createEvents().forEach(this.send);
    this.unanswered = this.history.unanswered;
    if (this.unanswered) this.#requestResponse();
    this.showState(this.state);
  }

  /** The socket broke off. The received part of the answer plays on: the rest may still come. */
  lost() {
    this.ready = this.requestedHere = false;
    this.beginning = this.resolveSettled = null;
  }

  /** End the conversation. Resolves when the player has reported how much was heard, or after REPORT_TIMEOUT. */
  settle() {
    this.ready = false;
    this.speech.silence();
    this.speech.end();
    this.transcript.settleAll("user"); // the agent's words are cut when the player has reported its position
    return Promise.race([new Promise((resolve) => (this.resolveSettled = resolve)), this.wait(REPORT_TIMEOUT)]);
  }

  #write(id, text, role = "user") {
    this.history.write(role, id, text);
    this.transcript.settle(role, id, text);
  }

  /** Send text that the user typed. */
  type(text) {
    const id = `typed_${Date.now().toString(36)}_${this.history.items.size}`;
    this.#write(id, text);
    this.speech.silence();
    if (!this.session) return; // it is sent with the history
    const event = itemCreate("user", id, text);
    this.typed.set(id, event);
    this.unanswered = id;
    this.requested = this.requestedHere = false;
    if (!this.ready) return;
    this.send(event);
    this.#requestResponse();
    this.showState(this.state);
  }

  #requestResponse() {
    this.requestLater = Boolean(this.response);
    if (this.requestLater) return this.#cancel();
    this.awaiting = this.requested = this.requestedHere = true;
    this.send({ type: "response.create", event_id: REQUEST });
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
    if (this.requestLater) this.#requestResponse();
  }

  #failed({ message, code, event_id: id }) {
    if (id === REQUEST) {
      this.requestLater = code === ACTIVE; // another response has begun meanwhile, or is about to
      if (this.requestLater && this.response) this.#cancel();
      this.awaiting = this.requestLater;
    }
    const quiet = id?.startsWith(HOUSEKEEPING) || code === NOT_FOUND;
    if (quiet) console.warn(message);
    else this.showProblem(serverProblem(message));
  }
}
