"""What a simulated caller puts around the agent: a recogniser that knows what was said, a watched LLM."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from rejoinder.agent.simulate.virtual_clock import standing_still
from rejoinder.models.scripted import SECONDS_PER_CHARACTER
from rejoinder.pipeline import RATE, AudioChunk, Llm, Message, Transcript
from rejoinder.pipeline.audio.chunk import Samples

DONE, MORE = 0.9, 0.1
"""What the turn model says of a caller who is done, and of one who only pauses."""


class Spoken:
    """The words of one call: each lies between two samples of the caller's microphone, at 16 kHz."""

    def __init__(self) -> None:
        self._words: list[tuple[float, str]] = []  # its middle, and the word

    def write(self, text: str, at: float) -> float:
        """Say words from a time in seconds on; return how long they take."""
        for word in text.split():
            seconds = (len(word) + 1) * SECONDS_PER_CHARACTER
            self._words.append(((at + seconds / 2) * RATE, word))
            at += seconds
        return seconds_of(text)

    def between(self, start: int, end: int) -> str:
        """Return the words that can be understood in a stretch of audio: those with their middle in it."""
        return " ".join(word for middle, word in self._words if start <= middle < end)


def seconds_of(text: str) -> float:
    """Return how long it takes to say something."""
    return sum(len(word) + 1 for word in text.split()) * SECONDS_PER_CHARACTER


class CallersStt:
    """Writes down what the caller says, exactly, ``seconds`` after it was asked."""

    def __init__(self, spoken: Spoken, seconds: float = 0.06) -> None:
        self.spoken = spoken
        self.seconds = seconds

    def stream(self) -> CallersSttStream:
        """Open the state of one session."""
        return CallersSttStream(self)


class CallersSttStream:
    """The turn of one session."""

    def __init__(self, stt: CallersStt) -> None:
        self._stt = stt
        self._start: int | None = None
        self._end = 0

    def feed(self, chunk: AudioChunk) -> None:
        """Note which stretch of the call was heard."""
        self._start = chunk.start if self._start is None else self._start
        self._end = chunk.end

    async def transcribe(self, is_final: bool) -> Transcript:
        """Return the words of that stretch."""
        start, end = self._start, self._end
        text = "" if start is None else self._stt.spoken.between(start, end)
        await asyncio.sleep(self._stt.seconds)
        return Transcript(text, is_final, end)

    def reset(self) -> None:
        """End the turn."""
        self._start = None


class CallersTurnModel:
    """Knows, nine times as likely as not, whether the caller is done; answers after ``seconds``."""

    def __init__(self, done: Callable[[], bool], seconds: float = 0.04) -> None:
        self._done = done
        self._seconds = seconds

    async def probability(self, audio: Samples, text: str) -> float:
        """Return how likely it is that the caller is done."""
        await asyncio.sleep(self._seconds)
        return DONE if self._done() else MORE


class WatchedLlm:
    """Somebody's language model, with a note of what it was asked and what is still open.

    answers_in: None where the model keeps its own time, by sleeping. With a number the clock stands still
        while it works, however long that takes, and its first token comes after so many virtual seconds: then
        it may use threads and sockets, and may not sleep.
    """

    def __init__(self, llm: Llm, answers_in: float | None = None) -> None:
        self._llm = llm
        self._answers_in = answers_in
        self.prompts: list[list[Message]] = []
        self.open = 0

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer."""
        self.prompts.append([message.copy() for message in messages])
        self.open += 1
        try:
            async with aclosing(self._llm.reply(messages)) as tokens:
                if self._answers_in is None:
                    async for token in tokens:
                        yield token
                    return
                await asyncio.sleep(self._answers_in)
                while (made := await self._next(tokens)) is not None:
                    yield made
        finally:
            self.open -= 1

    async def _next(self, tokens: AsyncGenerator[str, None]) -> str | None:
        with standing_still():
            return await anext(tokens, None)

    async def warm(self, messages: Sequence[Message]) -> None:
        """Warm the model's cache."""
        if self._answers_in is None:
            await self._llm.warm(messages)
            return
        with standing_still():
            await self._llm.warm(messages)
