// One socket: OpenAI's Realtime events as JSON text frames, audio as base64 inside them.

import { protocols } from "./key.js";

const GREETING_TIMEOUT = 10_000; // milliseconds to wait for the server's first event

// One second of audio in base64, with its JSON. If more waits in the browser, the network is slower than speech, and
// new audio is worth more than old audio.
const MAX_WAITING = 70_000; // bytes
const DEAD_AFTER = 10_000; // milliseconds with that backlog after which the server counts as unreachable
const NORMAL = 1000;
const UNREACHABLE = 4000; // close code: the page will come back; browsers cannot send 1006 or 1011

export class Session {
  /**
   * `place`: {conversation, last, played}, the id of the conversation to resume and of the newest event received, if
   * any; and {item, ms}, how much of the newest item was played, null where unknown.
   * `onEvent(event)`; `onSlow()` when microphone audio was dropped; `onClose({code, reason, greeted, expired})` once,
   * unless the page closed the socket. The browser reports a broken socket with code 1006. `expired`: whether the call
   * reached the server's time limit.
   */
  constructor({ place, onEvent, onSlow, onClose }) {
    this.greeted = false;
    this.expired = false;
    this.slowSince = null;
    this.onSlow = onSlow;
    this.onClose = onClose;
    this.socket = new WebSocket(address(place), protocols());
    this.greetingTimer = setTimeout(() => this.#lost(1006, ""), GREETING_TIMEOUT);
    this.socket.onclose = ({ code, reason }) => this.#lost(code, reason);
    this.socket.onmessage = ({ data }) => {
      const event = JSON.parse(data);
      if (event.type === "session.created") {
        this.greeted = true;
        clearTimeout(this.greetingTimer);
      }
      if (event.type === "error" && event.error.code === "session_expired") this.expired = true;
      onEvent(event);
    };
  }

  #lost(code, reason) {
    this.close(UNREACHABLE);
    this.onClose({ code, reason, greeted: this.greeted, expired: this.expired });
  }

  /** Close the socket. No more callbacks follow. */
  close(code = NORMAL) {
    clearTimeout(this.greetingTimer);
    this.socket.onclose = this.socket.onmessage = null;
    this.socket.close(code);
  }

  send(event) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(event));
  }

  sendAudio(pcm) {
    if (!this.greeted) return;
    if (this.socket.bufferedAmount <= MAX_WAITING) {
      this.slowSince = null;
      this.send({ type: "input_audio_buffer.append", audio: toBase64(pcm) });
    } else if (this.slowSince === null) {
      this.slowSince = performance.now();
      this.onSlow();
    } else if (performance.now() - this.slowSince > DEAD_AFTER && this.socket.onclose) this.#lost(1006, "");
  }
}

function address({ conversation, last, played }) {
  const url = new URL("v1/realtime?model=default&trace=true&hold=true", document.baseURI);
  if (conversation) url.searchParams.set("conversation_id", conversation);
  if (last) url.searchParams.set("last_event_id", last);
  if (conversation && played) {
    url.searchParams.set("item_id", played.item);
    url.searchParams.set("audio_end_ms", played.ms);
  }
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url;
}

function toBase64(buffer) {
  return btoa(String.fromCharCode(...new Uint8Array(buffer)));
}

/** Decode base64 int16 into a buffer that can be transferred to another thread. */
export function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
}
