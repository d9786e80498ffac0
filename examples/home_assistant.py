"""Send Home Assistant's requests to Rejoinder, from a recording to a spoken answer, without Home Assistant.

    python -m pip install wyoming
    REJOINDER_WYOMING_PORT=10300 rejoinder serve
    python examples/home_assistant.py question.wav answer.wav

Each step opens its own connection, as Home Assistant's integration does. docs/guides/wyoming.md describes
how to add the port to Home Assistant.
"""

from __future__ import annotations

import asyncio
import sys
import wave

import numpy as np
import soundfile
from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.handle import Handled, NotHandled
from wyoming.info import Describe, Info
from wyoming.tts import Synthesize

HOST = "127.0.0.1"
PORT = int(sys.argv[3]) if len(sys.argv) > 3 else 10300
CHUNK = 1024
"""Audio frames in one event, as satellites send them."""


async def ask(question: list[Event], last: tuple[str, ...]) -> list[Event]:
    """Send events over a connection, and return the answer's up to one of the types ``last``."""
    answer: list[Event] = []
    async with AsyncTcpClient(HOST, PORT) as client:
        for event in question:
            await client.write_event(event)
        while not answer or answer[-1].type not in last:
            event = await client.read_event()
            if event is None:
                sys.exit("Rejoinder closed the connection; its log says why")
            if event.type == "error":
                sys.exit(f"Rejoinder says: {Error.from_event(event).text}")
            answer.append(event)
    return answer


def recording(path: str) -> list[Event]:
    """Return the events that carry a recording, as 16-bit mono."""
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    pcm = (np.clip(samples.mean(axis=1), -1, 1) * 32767).astype("<i2").tobytes()
    form = {"rate": rate, "width": 2, "channels": 1}
    pieces = (pcm[first : first + 2 * CHUNK] for first in range(0, len(pcm), 2 * CHUNK))
    chunks = [AudioChunk(**form, audio=piece).event() for piece in pieces]
    return [AudioStart(**form).event(), *chunks, AudioStop().event()]


async def main(question: str, answer: str) -> None:
    """Ask the question in a recording, and write the answer to another."""
    info = Info.from_event((await ask([Describe().event()], ("info",)))[-1])
    print("found", *(part.name for parts in (info.asr, info.handle, info.tts) for part in parts))

    heard = await ask([Transcribe(language="en").event(), *recording(question)], ("transcript",))
    words = Transcript.from_event(heard[-1]).text
    print("heard", words)

    # An answer may arrive in pieces; "handled" has all of it.
    said = await ask([Transcript(text=words, language="en").event()], ("handled", "not-handled"))
    if NotHandled.is_type(said[-1].type):
        sys.exit(f"not answered: {NotHandled.from_event(said[-1]).text}")
    words = Handled.from_event(said[-1]).text or ""
    print("answers", words)

    spoken = await ask([Synthesize(text=words).event()], ("audio-stop",))
    start = AudioStart.from_event(spoken[0])
    with wave.open(answer, "wb") as file:
        file.setnchannels(start.channels)
        file.setsampwidth(start.width)
        file.setframerate(start.rate)
        for event in spoken[1:-1]:
            file.writeframes(AudioChunk.from_event(event).audio)
    print("spoken to", answer)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: python examples/home_assistant.py question.wav answer.wav [PORT]")
    try:
        asyncio.run(main(*sys.argv[1:3]))
    except soundfile.LibsndfileError as error:
        sys.exit(str(error))
    except OSError as error:
        if error.filename:  # the answer cannot be written
            sys.exit(str(error))
        sys.exit(f"cannot reach {HOST}:{PORT}: {error}; is wyoming_port set?")
