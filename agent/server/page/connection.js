// A connection that outlives its sockets. After a loss it opens a new socket, with waits that double, and sends the
// server the conversation's id, the last event that arrived, and what was played.

import { Session } from "./session.js";

const FIRST_WAIT = 500; // milliseconds
const MAX_WAIT = 8_000;
const MAX_TRIES = 10; // attempts in a row, about a minute
const STEADY = 10_000; // milliseconds after which an open socket resets the attempts
const FINAL = new Set([1000, 1002, 1003, 1007, 1009]); // close codes: the call has ended, or this page made an error

/** Return milliseconds until the next attempt, null for none. `begun`: whether a session ever began. */
export function nextWait({ code, reason, expired }, tries, begun) {
  const loading = code === 1013 && reason.includes("loading");
  if (expired || FINAL.has(code) || tries >= MAX_TRIES || !(begun || loading)) return null;
  return Math.min(MAX_WAIT, FIRST_WAIT * 2 ** tries);
}

export class Connection {
  /**
   * `onLost(close)`: another attempt follows; `onGone(close)`: none follows. For `close` and `played()` see session.js.
   */
  constructor({ signal, played, onEvent, onSlow, onLost, onGone }) {
    Object.assign(this, { signal, played, onEvent, onSlow, onLost, onGone });
    this.tries = 0;
    this.begun = false;
    this.session = null;
    this.place = {}; // see session.js
    window.addEventListener("online", () => this.tryNow(), { signal });
    signal.addEventListener("abort", () => {
      clearTimeout(this.timer);
      this.session?.close();
    });
    this.#open();
  }

  #open() {
    this.timer = null;
    const opened = performance.now();
    this.session = new Session({
      place: { ...this.place, played: this.played() },
      onSlow: this.onSlow,
      onEvent: (event) => {
        if (event.type === "session.created") this.begun = true;
        this.onEvent(event);
        if (event.type === "conversation.created") this.place.conversation = event.conversation.id;
        this.place.last = event.event_id;
      },
      onClose: (close) => {
        if (close.greeted && performance.now() - opened > STEADY) this.tries = 0;
        this.#closed(close);
      },
    });
  }

  #closed(close) {
    const wait = nextWait(close, this.tries++, this.begun);
    if (wait === null) return this.onGone(close);
    // A random wait, so that the clients of a restarted server do not all reconnect at once.
    this.timer = setTimeout(() => this.#open(), wait * (0.8 + 0.4 * Math.random()));
    this.onLost(close);
  }

  /** Cancel the wait for the next attempt. */
  tryNow() {
    if (!this.timer) return;
    clearTimeout(this.timer);
    this.#open();
  }

  send(event) {
    this.session.send(event);
  }

  sendAudio(pcm) {
    this.session.sendAudio(pcm);
  }
}
