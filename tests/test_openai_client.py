"""openai-python, which nobody here wrote, holds a spoken conversation with the server, on real models."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from serving import Server, serving

from rejoinder.agent.recordings import RecordingsMissing, read_set, speech_folder
from rejoinder.pipeline import to_pcm

pytestmark = pytest.mark.weights
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
    """Speaks through the client and notes what it is told."""

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
        async with asyncio.timeout(40):
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


def test_a_spoken_conversation_with_an_interruption(tmp_path: Path) -> None:
    pcm = question()

    async def converse(server: Server) -> None:
        async with client(server) as openai, openai.realtime.connect(model="default") as connection:
            caller = Caller(connection)
            await caller.until("session.created")
            await connection.session.update(session={"type": "realtime", "instructions": "Tell a story."})
            await caller.until("session.updated")
            speaking = asyncio.create_task(caller.say(pcm, 2.0))
            heard = await caller.until("conversation.item.input_audio_transcription.completed")
            assert "weather" in heard.transcript.lower()
            await caller.until("response.output_audio.delta")
            await speaking
            again = asyncio.create_task(caller.say(pcm, 2.0))
            await caller.until("input_audio_buffer.speech_started")
            cut = await caller.until("response.done")
            assert cut.response.status == "cancelled"
            played = len(caller.audio) // 48
            assert 1000 < played < 15_000, "some of the story was sent, and not much more than was heard"
            item = cut.response.output[0].id
            await connection.conversation.item.truncate(item_id=item, content_index=0, audio_end_ms=1000)
            assert (await caller.until("conversation.item.truncated")).audio_end_ms == 1000
            await caller.until("response.output_audio.delta")
            await again
            await connection.response.cancel()
            await caller.until("response.done")
            assert [event for event in caller.events if event.type == "error"] == []

    with serving(tmp_path, llm=f"scripted:llm|{STORY}", **REAL) as server:
        asyncio.run(converse(server))
        server.wait_idle()


def test_turns_by_hand_and_typed_words_with_the_embedded_model(tmp_path: Path) -> None:
    pcm = question()

    async def converse(server: Server) -> None:
        async with client(server) as openai, openai.realtime.connect(model="default") as connection:
            caller = Caller(connection)
            manual = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
            await connection.session.update(session=manual)
            await caller.until("session.updated")
            await caller.say(pcm)
            await connection.input_audio_buffer.commit()
            await connection.response.create()
            heard = await caller.until("conversation.item.input_audio_transcription.completed")
            assert "weather" in heard.transcript.lower()
            done = await caller.until("response.done")
            assert done.response.status == "completed" and len(caller.audio) > 24_000
            words = {"type": "input_text", "text": "Say hello."}
            await connection.conversation.item.create(
                item={"type": "message", "role": "user", "content": [words]}
            )
            await caller.until("conversation.item.done")
            await connection.response.create()
            done = await caller.until("response.done")
            assert done.response.status == "completed" and done.response.output[0].content[0].transcript

    with serving(tmp_path, llm="llama:smollm2-135m-instruct", **REAL) as server:
        asyncio.run(converse(server))
        server.wait_idle()
