// One socket: OpenAI's Realtime events as JSON text frames, audio as base64 inside them.

import { protocols } from "./key.js";

const PATIENCE = 10_000; // milliseconds until the server must have greeted us

// One second of audio in base64, with its JSON around it. More than this waiting in the browser means that the
// network is slower than speech, and then old sound is worth less than new sound.
const MOST_WAITING = 70_000; // bytes
const DEAD_AFTER = 10_000; // milliseconds for which that much waits: nobody is there, though the browser has not noticed
const OVER = 1000;
const SEEMS_DEAD = 4000; // tells the server that we mean to come back; browsers may not send 1006 or 1011

export class Session {
  /**
   * `place`: {conversation, last}, the conversation to go on with and the newest event we have of it, if there is one.
   * `onEvent(event)`, `onSlow()` when microphone audio had to be dropped, `onClose({code, reason, greeted, expired})`
   * once, unless the page closed it itself. Code 1006 is the browser's for a socket that broke off; `expired`: the
   * server has said that the call has lasted as long as it may.
   */
  constructor({ place, onEvent, onSlow, onClose }) {
    this.greeted = false;
    this.expired = false;
    this.slowSince = null;
    this.onSlow = onSlow;
    this.onClose = onClose;
    this.socket = new WebSocket(address(place), protocols());
    this.impatience = setTimeout(() => this.#lost(1006, ""), PATIENCE);
    this.socket.onclose = ({ code, reason }) => this.#lost(code, reason);
    this.socket.onmessage = ({ data }) => {
      const event = JSON.parse(data);
      if (event.type === "session.created") {
        this.greeted = true;
        clearTimeout(this.impatience);
      }
      if (event.type === "error" && event.error.code === "session_expired") this.expired = true;
      onEvent(event);
    };
  }

  #lost(code, reason) {
    this.close(SEEMS_DEAD);
    this.onClose({ code, reason, greeted: this.greeted, expired: this.expired });
  }

  /** End it; nothing is told of it any more. */
  close(code = OVER) {
    clearTimeout(this.impatience);
    this.socket.onclose = this.socket.onmessage = null;
    this.socket.close(code);
  }

  send(event) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(event));
  }

  sendAudio(pcm) {
    if (!this.greeted) return;
    if (this.socket.bufferedAmount <= MOST_WAITING) {
      this.slowSince = null;
      this.send({ type: "input_audio_buffer.append", audio: toBase64(pcm) });
    } else if (this.slowSince === null) {
      this.slowSince = performance.now();
      this.onSlow();
    } else if (performance.now() - this.slowSince > DEAD_AFTER && this.socket.onclose) this.#lost(1006, "");
  }
}

function address({ conversation, last }) {
  const url = new URL("v1/realtime?model=default&trace=true&hold=true", document.baseURI);
  if (conversation) url.searchParams.set("conversation_id", conversation);
  if (last) url.searchParams.set("last_event_id", last);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url;
}

function toBase64(buffer) {
  return btoa(String.fromCharCode(...new Uint8Array(buffer)));
}

/** Decode base64 int16 into a buffer that can be handed over to another thread. */
export function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
}
