// What the page does with each event of the server, and with what is typed: who has the floor, and what is asked for.
// No DOM, no socket, no clock, as in speech.js, which does the same for the agent's voice: `wait` is handed in.

import { itemCreate } from "./history.js";
import { responseProblem, serverProblem } from "./problems.js";
import { HOUSEKEEPING, Speech } from "./speech.js";

const ASKING = `${HOUSEKEEPING}response.create`;
const ACTIVE = "conversation_already_has_active_response";
const NOT_FOUND = "conversation_not_found"; // we tell the new one what was said
const PATIENCE = 500; // milliseconds for the player to tell what was heard last

export class Conversation {
  /** `given`: what speech.js is given, `showState(state)`, and `wait(milliseconds)`, which resolves then. */
  constructor(given) {
    const { history, player, transcript, showState, showLevel, showProblem, wait } = given;
    Object.assign(this, { history, player, transcript, showState, showLevel, showProblem, wait });
    this.send = (event) => {
      if (this.ready) given.send(event);
      else if (this.session) this.unsent.push(event);
    };
    this.speech = new Speech({ ...given, send: this.send });
    this.session = null; // id of the server's session that knows all of this
    this.ready = false; // whether the server listens to us
    this.#forget();
  }

  // What holds for one session of the server only.
  #forget() {
    this.unsent = []; // what the server will hear when it listens again
    this.typed = new Map(); // item id -> the event that tells it, while the server has not told us that it has it
    this.due = null; // id of what was typed last, while no response has begun that answers it
    this.asked = this.heard = false; // whether that was asked for, and over this socket
    this.userSpeaking = false;
    this.awaiting = false; // the user has finished, and no response has begun
    this.response = null; // id of the response in progress
    this.owed = false; // a response has to be asked for when this one is done: it does not answer what was typed
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
        else if (this.asked) this.due = null; // else it answers what was said before
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

  // The server goes on where the socket broke off, or it has lost the conversation, as it has none at first.
  #begin(id) {
    this.showProblem(null);
    if (id === this.session) this.#resume();
    else if (!this.session) this.#tell(id);
    else this.settle().then(() => this.#tell(id));
  }

  // What the server says next is what we missed, and behind that what it says to this: only then is it clear whether
  // what was typed just before the break is being answered.
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

  // An item that we do not know: the server tells all of them where it has not kept what we missed.
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

  /** The socket broke off. What we have of the answer sounds on: the rest may come yet. */
  lost() {
    this.ready = this.heard = false;
    this.settled = null;
  }

  /** Nothing more will come of what was begun. Resolves when the player has told how much of it was heard, or soon. */
  settle() {
    this.ready = false;
    this.speech.silence();
    this.speech.end();
    this.transcript.rest("user"); // the agent's words are cut when the player has told where
    return Promise.race([new Promise((resolve) => (this.settled = resolve)), this.wait(PATIENCE)]);
  }

  #said(id, text, role = "user") {
    this.history.write(role, id, text);
    this.transcript.settle(role, id, text);
  }

  /** The user has typed something. */
  type(text) {
    const id = `typed_${Date.now().toString(36)}_${this.history.items.size}`;
    this.#said(id, text);
    this.speech.silence();
    if (!this.session) return; // the history will tell it
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
    const quiet = id?.startsWith(HOUSEKEEPING) || code === NOT_FOUND;
    if (quiet) console.warn(message);
    else this.showProblem(serverProblem(message));
  }
}
