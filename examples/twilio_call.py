"""Call a running server as Twilio does, without an account: play a recording and record the whole call.

    rejoinder serve
    python examples/twilio_call.py question.wav call.wav [ws://127.0.0.1:8080/v1/phone] [KEYS]

It speaks Media Streams in real time: start, media, marks that come back when they were played, dtmf, stop.
KEYS (such as 42#) are pressed a second into the answer. The WAV has the caller on the left, the agent on the
right. To call from a number, set CALLER=+3221234567. If the server requires a key, set REJOINDER_KEY. If it
checks Twilio's signatures, set TWILIO_AUTH_TOKEN.
"""

import asyncio
import base64
import hmac
import io
import json
import os
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any

import numpy as np
import soundfile
import soxr
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

RATE = 8000
FRAME = 160
"""Samples in one frame: 20 ms."""
LONGEST = 60 / 0.02
"""Most frames of a call."""
OVER = 1.5 / 0.02
"""Frames of silence that end an answer."""
PRESSED = 1.0 / 0.02
"""Frames of an answer before the keys are pressed."""
SILENCE = b"\xff"
STREAM = "MZ00000000000000000000000000000000"


class Line:
    """The carrier's side of one call: the audio left to send, and the audio left to play."""

    def __init__(self, socket: ClientConnection, said: bytes) -> None:
        self.said = said
        self.heard = bytearray()
        self.loud = self.quiet = 0  # frames of the agent, and since then
        self._socket = socket
        self._number = 0
        self._playing: deque[bytes | str] = deque()  # audio, and the names of marks between

    async def send(self, event: str, **fields: Any) -> None:
        self._number += 1
        message = {"event": event, "sequenceNumber": str(self._number), "streamSid": STREAM, **fields}
        await self._socket.send(json.dumps(message))

    async def start(self) -> None:
        await self._socket.send(json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
        about = {"streamSid": STREAM, "callSid": "CA" + "0" * 32, "tracks": ["inbound"]}
        audio = {"encoding": "audio/x-mulaw", "sampleRate": RATE, "channels": 1}
        caller = os.environ.get("CALLER")  # Twilio does not send it: examples/twilio.py passes it like this
        parameters = {"caller": caller} if caller else {}
        await self.send("start", start={**about, "mediaFormat": audio, "customParameters": parameters})

    async def frame(self, number: int) -> None:
        """Send 20 ms, and play 20 ms of the received audio."""
        frame = self.said[number * FRAME : (number + 1) * FRAME].ljust(FRAME, SILENCE)
        payload = base64.b64encode(frame).decode()
        about = {"track": "inbound", "chunk": str(number + 1), "timestamp": str(number * 20)}
        await self.send("media", media={**about, "payload": payload})
        played = b""
        while self._playing and len(played) < FRAME:
            match self._playing.popleft():
                case str(name):
                    await self._played(name)
                case audio:
                    rest = FRAME - len(played)
                    played += audio[:rest]
                    if len(audio) > rest:
                        self._playing.appendleft(audio[rest:])
        self.loud += bool(played)
        self.quiet = 0 if played or not self.loud else self.quiet + 1
        self.heard += played.ljust(FRAME, SILENCE)

    async def listen(self) -> None:
        async for text in self._socket:
            message = json.loads(text)
            match message["event"]:
                case "media":
                    self._playing.append(base64.b64decode(message["media"]["payload"]))
                case "mark":
                    self._playing.append(message["mark"]["name"])
                case "clear":  # returns all marks that are out
                    marks = [one for one in self._playing if isinstance(one, str)]
                    self._playing.clear()
                    print(f"{self.at()}  clear: the agent was interrupted, {len(marks)} marks returned")
                    for name in marks:
                        await self.send("mark", mark={"name": name})

    async def _played(self, name: str) -> None:
        print(f"{self.at()}  played up to the mark {name}")
        await self.send("mark", mark={"name": name})

    def at(self) -> str:
        return f"{len(self.heard) / RATE:6.2f} s"


def encode(samples: np.ndarray) -> bytes:
    """Return float samples of shape (n,) as mu-law, one byte each."""
    file = io.BytesIO()
    soundfile.write(file, np.clip(samples, -1, 1), RATE, "ULAW", format="RAW")
    return file.getvalue()


def decode(codes: bytes) -> np.ndarray:
    """Return mu-law as int16 samples of shape (n,)."""
    how = {"samplerate": RATE, "channels": 1, "subtype": "ULAW", "format": "RAW"}
    return soundfile.read(io.BytesIO(codes), dtype="int16", **how)[0]


def signature(token: str, url: str) -> str:
    """Return Twilio's signature of a WebSocket (https://www.twilio.com/docs/usage/security)."""
    return base64.b64encode(hmac.digest(token.encode(), url.encode(), "sha1")).decode()


async def call(line: Line, keys: str) -> None:
    """Hold the call until the last answer is over, or the server hangs up."""
    listening = asyncio.create_task(line.listen())
    began, number = time.monotonic(), 0
    try:
        await line.start()
        while number < LONGEST and not listening.done():
            await line.frame(number)
            number += 1
            await asyncio.sleep(began + number * 0.02 - time.monotonic())
            if number * FRAME < len(line.said):
                line.loud = 0
            elif keys and line.loud >= PRESSED:
                print(f"{line.at()}  pressed {keys}")
                for key in keys:
                    await line.send("dtmf", dtmf={"track": "inbound_track", "digit": key})
                keys, line.loud = "", 0  # the call ends after the answer to this
            elif line.quiet >= OVER:
                break
        await line.send("stop", stop={"callSid": "CA" + "0" * 32})
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening  # raises the reason if the call failed


async def main(question: str, kept: str, url: str = "ws://127.0.0.1:8080/v1/phone", keys: str = "") -> None:
    samples, rate = soundfile.read(question, dtype="float32", always_2d=True)
    narrow = soxr.resample(samples.mean(axis=1), rate, RATE)
    said = encode(narrow)
    shown = (
        {"Authorization": f"Bearer {os.environ['REJOINDER_KEY']}"} if "REJOINDER_KEY" in os.environ else {}
    )
    if token := os.environ.get("TWILIO_AUTH_TOKEN"):
        shown["X-Twilio-Signature"] = signature(token, url.replace("ws:", "wss:", 1))
    async with connect(url, additional_headers=shown, proxy=None) as socket:
        # Opened before the call: no call is made if the file cannot be written.
        with soundfile.SoundFile(kept, "w", RATE, 2, format="WAV") as file:
            line = Line(socket, said)
            await call(line, keys)
            heard = decode(bytes(line.heard))
            mouth = decode(said.ljust(len(heard), SILENCE)[: len(heard)])
            file.write(np.stack((mouth, heard), axis=1))
    print(f"{len(heard) / RATE:.1f} s in {kept}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4, 5):
        sys.exit(__doc__)
    try:
        asyncio.run(main(*sys.argv[1:]))
    except ConnectionRefusedError as error:
        sys.exit(f"the call failed: {error}; is the server running there?")
    except InvalidStatus as error:
        reason = (error.response.body or b"").decode(errors="replace").strip()
        sys.exit(f"the server refused the call: HTTP {error.response.status_code} {reason}")
    except (OSError, WebSocketException, soundfile.LibsndfileError) as error:
        sys.exit(f"the call failed: {error}")
