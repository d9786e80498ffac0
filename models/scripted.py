"""Models without weights, for scenarios in virtual time, load tests and trying the wires out.

They answer by rule and take time by ``asyncio.sleep``, so that in virtual time a conversation has one exact
timeline. Speech is any audio that is loud; its words come from the script, not from the audio. They prove
nothing about real audio and are never used to claim so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing

import numpy as np

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples, to_pcm
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Message, ToolCall, Tools, Transcript

WINDOW = 512
LOUD = 0.02
SECONDS_PER_CHARACTER = 0.06


class ScriptedVad:
    """Finds speech in windows of 32 ms that are louder than about -34 dBFS."""

    def stream(self) -> ScriptedVadStream:
        """Open the state of one session."""
        return ScriptedVadStream()


class ScriptedVadStream:
    """The windows of one session."""

    def __init__(self) -> None:
        self._rest: Samples = np.zeros(0, np.float32)
        self._position = 0

    def feed(self, chunk: AudioChunk) -> list[tuple[int, float]]:
        """Return 1.0 for each loud window and 0.0 for each quiet one. Raises ValueError unless at 16 kHz."""
        if chunk.rate != RATE:
            raise ValueError(f"the scripted VAD listens at {RATE} Hz, not {chunk.rate}")
        audio = np.concatenate((self._rest, chunk.samples()))
        results = []
        for first in range(0, len(audio) - WINDOW + 1, WINDOW):
            self._position += WINDOW
            window = audio[first : first + WINDOW]
            level = float(np.dot(window, window)) / WINDOW
            results.append((self._position, 1.0 if level > LOUD**2 else 0.0))
        self._rest = audio[len(results) * WINDOW :]
        return results


class ScriptedStt:
    """Hears the lines of a script, one per turn, word by word as audio comes in.

    lines: what each turn says; the last one repeats. seconds: how long a transcription takes.
    words_per_second: how fast the script is spoken; a final transcript has the whole line.
    """

    def __init__(self, lines: Iterable[str], seconds: float = 0.06, words_per_second: float = 3.0) -> None:
        self.lines = list(lines)
        self.seconds = seconds
        self.words_per_second = words_per_second

    def stream(self) -> ScriptedSttStream:
        """Open the state of one session, at the first line."""
        return ScriptedSttStream(self)


class ScriptedSttStream:
    """The turn of one session."""

    def __init__(self, stt: ScriptedStt) -> None:
        self._stt = stt
        self._turn = -1
        self._fed = 0
        self._end = 0

    def feed(self, chunk: AudioChunk) -> None:
        """Count the audio."""
        if not self._fed and len(chunk):
            self._turn += 1
        self._fed += len(chunk)
        self._end = chunk.end

    async def transcribe(self, is_final: bool) -> Transcript:
        """Return the words of the line that fit into the audio so far, all of them when final."""
        line = self._stt.lines[min(self._turn, len(self._stt.lines) - 1)] if self._fed else ""
        end, words = self._end, line.split()
        count = len(words) if is_final else int(self._fed / RATE * self._stt.words_per_second)
        await asyncio.sleep(self._stt.seconds)
        return Transcript(" ".join(words[:count]), is_final, end)

    def reset(self) -> None:
        """End the turn."""
        self._fed = 0


class ScriptedTurnModel:
    """Always equally sure, after ``seconds``."""

    def __init__(self, probability: float = 1.0, seconds: float = 0.04) -> None:
        self._probability = probability
        self._seconds = seconds

    async def probability(self, audio: Samples, text: str) -> float:
        """Return the fixed probability."""
        await asyncio.sleep(self._seconds)
        return self._probability


class ScriptedLlm:
    """Answers with the lines of a script, in turn, or repeats what was said.

    Where there are tools, what stands behind a ``@`` is a call: ``Let me see. @weather {"city": "Rome"}``.

    first, each: seconds before the first token and before each later one.
    fail_after: raise ModelError after so many tokens, None for never.
    """

    def __init__(
        self,
        lines: Sequence[str] = (),
        first: float = 0.08,
        each: float = 0.02,
        fail_after: int | None = None,
    ) -> None:
        self.lines = list(lines)
        self.first = first
        self.each = each
        self.fail_after = fail_after
        self.prompts: list[list[Message]] = []
        self.open = 0

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the next line word by word."""
        async with aclosing(self._say(self._line(messages))) as words:
            async for word in words:
                yield word

    async def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        """Stream the next line word by word, and then make the calls in it."""
        said, *calls = self._line(messages).split("@")
        async with aclosing(self._say(said)) as words:
            async for word in words:
                yield word
        for number, call in enumerate(calls):
            name, _, arguments = call.strip().partition(" ")
            yield ToolCall(f"call_{len(self.prompts)}_{number}", name, arguments or "{}")

    def _line(self, messages: Sequence[Message]) -> str:
        self.prompts.append(list(messages))
        answers = sum(message["role"] == "assistant" for message in messages)
        return self.lines[answers % len(self.lines)] if self.lines else f"You said: {messages[-1]['content']}"

    async def _say(self, line: str) -> AsyncGenerator[str, None]:
        self.open += 1
        try:
            await asyncio.sleep(self.first)
            for count, word in enumerate(line.split()):
                if count == self.fail_after:
                    raise ModelError("scripted", f"failed after {count} tokens as the script says")
                yield word + " "
                await asyncio.sleep(self.each)
        finally:
            self.open -= 1

    def count(self, messages: Sequence[Message]) -> int:
        """Return the number of words in the prompt: a token here is a word."""
        return sum(len(message["content"].split()) for message in messages)

    async def warm(self, messages: Sequence[Message]) -> None:
        """Do nothing: there is no cache."""


class ScriptedTts:
    """Hums: ``SECONDS_PER_CHARACTER`` of a tone per character, made ``seconds`` after it was asked for."""

    def __init__(self, seconds: float = 0.05, rate: int = 24_000) -> None:
        self.seconds = seconds
        self.rate = rate
        self.open = 0

    async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        """Stream the tone in a single chunk; without a letter or a digit there is nothing to hum."""
        if not any(map(str.isalnum, text)):
            return
        self.open += 1
        try:
            await asyncio.sleep(self.seconds)
            times = np.arange(int(len(text) * SECONDS_PER_CHARACTER * self.rate)) / self.rate
            yield AudioChunk(to_pcm(0.3 * np.sin(2 * np.pi * 220 * times).astype(np.float32)), self.rate)
        finally:
            self.open -= 1


def create(argument: str) -> object:
    """Make a scripted model: ``vad``, ``turn``, ``tts``, ``stt|LINE|LINE…`` or ``llm|LINE|LINE…``."""
    kind, *lines = argument.split("|")
    match kind:
        case "vad":
            return ScriptedVad()
        case "turn":
            return ScriptedTurnModel()
        case "stt":
            return ScriptedStt(lines or ["hello there"])
        case "llm":
            return ScriptedLlm(lines)
        case "tts":
            return ScriptedTts()
        case _:
            raise ModelError("scripted", f"there is no {kind!r}; there are vad, turn, stt, llm and tts")
