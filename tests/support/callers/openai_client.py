"""A caller that speaks through openai-python."""

import asyncio
import base64
from typing import Any

import pytest
from openai import AsyncOpenAI
from support.patience import PATIENCE
from support.serving import Server

from rejoinder.agent.bench.cases.recordings import RecordingsMissing, read_set, speech_folder
from rejoinder.pipeline import to_pcm

STORY = " ".join(f"This is sentence number {number} of a story." for number in range(1, 15))

REAL = {"stt": "whisper:tiny.en", "tts": "piper:en_US-joe-medium", "turn": "smart-turn", "vad": "silero"}


def question() -> bytes:
    try:
        recordings = read_set(speech_folder(), "assistant_utterances")
    except RecordingsMissing as error:
        pytest.skip(str(error))
    found = next(r for r in recordings if r.path.stem == "azure_whatstheweatherlike")
    return to_pcm(found.load(24_000))


class Caller:
    """Speaks through the client and records the events that it receives."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.events: list[Any] = []
        self.audio = b""

    async def say(self, pcm: bytes, seconds_of_silence: float = 0.0) -> None:
        """Speak in real time."""
        pcm += bytes(int(seconds_of_silence * 24_000) * 2)
        for first in range(0, len(pcm), 1920):
            piece = base64.b64encode(pcm[first : first + 1920]).decode()
            await self.connection.input_audio_buffer.append(audio=piece)
            await asyncio.sleep(0.04)

    async def until(self, type_: str) -> Any:
        async with asyncio.timeout(2 * PATIENCE):
            while True:
                event = await self.connection.recv()
                self.events.append(event)
                if event.type == "response.output_audio.delta":
                    self.audio += base64.b64decode(event.delta)
                if event.type == type_:
                    return event


def client(server: Server) -> AsyncOpenAI:
    host = f"127.0.0.1:{server.port}"
    return AsyncOpenAI(api_key="none", base_url=f"http://{host}/v1", websocket_base_url=f"ws://{host}/v1")
