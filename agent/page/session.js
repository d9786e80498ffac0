// The socket: OpenAI's Realtime events as JSON text frames, audio as base64 inside them.

const PATIENCE = 10_000; // milliseconds until the server must have greeted us

// One second of audio in base64, with its JSON around it. More than this waiting in the browser means that the
// network is slower than speech, and then old sound is worth less than new sound.
const MOST_WAITING = 70_000; // bytes

export class Session {
  /** `onEvent(event)`, `onSlow()` when microphone audio had to be dropped, `onClose({code, reason, greeted})`. */
  constructor({ signal, onEvent, onSlow, onClose }) {
    this.greeted = false;
    this.slow = false;
    this.onSlow = onSlow;
    this.socket = new WebSocket(address());
    const close = (code, reason) => {
      clearTimeout(impatience);
      if (!signal.aborted) onClose({ code, reason, greeted: this.greeted });
    };
    const impatience = setTimeout(() => close(0, ""), PATIENCE);
    this.socket.onclose = ({ code, reason }) => close(code, reason);
    this.socket.onmessage = ({ data }) => {
      if (signal.aborted) return;
      const event = JSON.parse(data);
      if (event.type === "session.created") {
        this.greeted = true;
        clearTimeout(impatience);
      }
      onEvent(event);
    };
    signal.addEventListener("abort", () => {
      clearTimeout(impatience);
      this.socket.close(1000);
    });
  }

  send(event) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(event));
  }

  sendAudio(pcm) {
    if (!this.greeted) return;
    const slow = this.socket.bufferedAmount > MOST_WAITING;
    if (!slow) this.send({ type: "input_audio_buffer.append", audio: toBase64(pcm) });
    else if (!this.slow) this.onSlow();
    this.slow = slow;
  }
}

function address() {
  const url = new URL("v1/realtime?model=default&trace=true&hold=true", document.baseURI);
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
