"""Models of another distribution that stop in the middle for ever: in a coroutine, without an error.

The voice and the language model stop at a word, and the other models at loud audio. The language model also
stops the writer of its call, which sends the events to the client. One more voice activity detection is slow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import numpy as np

from rejoinder.agent.bench.faults.models import FULL_SCALE, LETTER_SECONDS, VOICE_RATE
from rejoinder.agent.wires.call import Call
from rejoinder.models.scripted import (
    ScriptedLlm,
    ScriptedStt,
    ScriptedSttStream,
    ScriptedTurnModel,
    ScriptedVad,
    ScriptedVadStream,
)
from rejoinder.pipeline.audio.chunk import AudioChunk, Samples
from rejoinder.pipeline.engines import call_id
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Message, Transcript

STOP = "freeze"
"""The word at which the voice stops; behind "model" the language model does, behind "writer" the writer."""

TURN_STOPPED = "the turn model freezes, on purpose"
"""The line of the log when it does."""


async def stop() -> None:
    """Wait for ever. Only cancelling ends it."""
    await asyncio.get_running_loop().create_future()


def freeze_writer() -> None:
    """Let the writer of the call that this runs in wait for ever at its next message to the client.

    Raises ModelError where no call has a writer.
    """
    for task in asyncio.all_tasks():
        coroutine: Any = task.get_coro()
        if coroutine.__qualname__ != Call._write_events.__qualname__:
            continue
        call: Call = coroutine.cr_frame.f_locals["self"]
        if call.log.id == call_id.current.get():
            _freeze(task, call)
            return
    raise ModelError("frozen", "no call has a writer here")


def _freeze(writer: asyncio.Task[Any], call: Call) -> None:
    send = call._socket.send

    async def sent(messages: Sequence[Any]) -> None:
        if asyncio.current_task() is writer:
            await stop()
        await send(messages)

    vars(call._socket)["send"] = sent


class FrozenLlm(ScriptedLlm):
    """Repeats the user's last sentence."""

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the words. Closing the generator stops it."""
        words = messages[-1]["content"].strip()
        if f"writer {STOP}" in words:
            freeze_writer()
        yield "Well, "
        if f"model {STOP}" in words:
            await stop()
        yield words


class FrozenVoice:
    """Says each clause as a tone."""

    async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        """Yield the audio of one clause. Closing the generator cancels it."""
        if STOP in text.lower():
            await stop()
        times = np.arange(int(len(text) * LETTER_SECONDS * VOICE_RATE)) / VOICE_RATE
        tone = (9_000 * np.sin(2 * np.pi * 220 * times)).astype("<i2")
        yield AudioChunk(tone.tobytes(), VOICE_RATE, 0)


def is_loud(chunk: AudioChunk) -> bool:
    """Return whether audio is at full scale."""
    return is_full_scale(chunk.samples())


def is_full_scale(audio: Samples) -> bool:
    """Return whether a sample is at full scale. audio: shape (samples,), float32 in [-1, 1]."""
    return float(np.abs(audio).max(initial=0.0)) >= FULL_SCALE


class FrozenVad(ScriptedVad):
    """Judges all sessions together."""

    def stream(self) -> ScriptedVadStream:
        """Open the state of one session."""
        return FrozenVadStream()


class FrozenVadStream(ScriptedVadStream):
    """The VAD state of one session."""

    async def feed_together(self, chunk: AudioChunk) -> list[tuple[int, float]]:
        """Return what ``feed`` returns."""
        if is_loud(chunk):
            await stop()
        return self.feed(chunk)


class SlowVad(ScriptedVad):
    """Takes a third of the time that the audio lasts."""

    def stream(self) -> ScriptedVadStream:
        """Open the state of one session."""
        return SlowVadStream()


class SlowVadStream(ScriptedVadStream):
    """The VAD state of one session."""

    async def feed_together(self, chunk: AudioChunk) -> list[tuple[int, float]]:
        """Return what ``feed`` returns."""
        await asyncio.sleep(chunk.seconds / 3)
        return self.feed(chunk)


class FrozenTurnModel(ScriptedTurnModel):
    """Judges no pause after loud audio."""

    async def probability(self, audio: Samples, text: str) -> float:
        """Return the fixed probability. Cancelling ends the wait."""
        if is_full_scale(audio):
            logging.getLogger(__name__).warning(TURN_STOPPED)
            await stop()
        return await super().probability(audio, text)


class FrozenStt(ScriptedStt):
    """Hears one sentence."""

    def __init__(self) -> None:
        super().__init__(["tell me about the weather"])

    def stream(self) -> ScriptedSttStream:
        """Open the state of one session."""
        return FrozenSttStream(self)


class FrozenSttStream(ScriptedSttStream):
    """The state of one session."""

    loud = False

    def feed(self, chunk: AudioChunk) -> None:
        """Add audio of the turn."""
        super().feed(chunk)
        self.loud = self.loud or is_loud(chunk)

    async def transcribe(self, is_final: bool) -> Transcript:
        """Return the words. Cancelling changes nothing."""
        if self.loud:
            await stop()
        return await super().transcribe(is_final)


KINDS = {
    "vad": FrozenVad,
    "slow-vad": SlowVad,
    "turn": FrozenTurnModel,
    "stt": FrozenStt,
    "llm": FrozenLlm,
    "tts": FrozenVoice,
}
"""The models, by their roles."""


def opened(argument: str, threads: int) -> object:
    """Open one of ``KINDS``. Raises ModelError for another name."""
    if argument not in KINDS:
        raise ModelError("frozen", f"there is no {argument!r}; there are {', '.join(KINDS)}")
    return KINDS[argument]()
