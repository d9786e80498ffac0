"""The models of a simulated call: a recogniser that knows the caller's words, and a wrapper of the LLM."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, aclosing
from typing import Any

from rejoinder.agent.simulate.virtual_clock import in_real_time, standing_still
from rejoinder.models.scripted import SECONDS_PER_CHARACTER
from rejoinder.pipeline import RATE, AudioChunk, Llm, Message, ToolCall, ToolLlm, Tools, Transcript
from rejoinder.pipeline.audio.chunk import Samples

TURN_OVER = 0.9
"""Probability of the turn model for a caller whose turn is over."""
MORE = 0.1
"""Probability of the turn model for a caller who only pauses."""


class Spoken:
    """The caller's words in one call, with their positions in the microphone's audio at 16 kHz.

    done: whether the caller's turn is over.
    """

    def __init__(self) -> None:
        self.done = True
        self._words: list[tuple[float, str]] = []  # middle of the word in samples, and the word

    def write(self, text: str, at: float) -> float:
        """Add words from a time in seconds on. Return their length in seconds."""
        for word in text.split():
            seconds = (len(word) + 1) * SECONDS_PER_CHARACTER
            self._words.append(((at + seconds / 2) * RATE, word))
            at += seconds
        return seconds_of(text)

    def between(self, start: int, end: int) -> str:
        """Return the words whose middle lies between two samples."""
        return " ".join(word for middle, word in self._words if start <= middle < end)


def seconds_of(text: str) -> float:
    """Return how long a text takes to say, in seconds."""
    return sum(len(word) + 1 for word in text.split()) * SECONDS_PER_CHARACTER


class CallersStt:
    """A recogniser that returns the caller's exact words after ``seconds``."""

    def __init__(self, spoken: Spoken, seconds: float = 0.06) -> None:
        self.spoken = spoken
        self.seconds = seconds

    def stream(self) -> CallersSttStream:
        """Open the state of one session."""
        return CallersSttStream(self)


class CallersSttStream:
    """The recogniser's state of one session."""

    def __init__(self, stt: CallersStt) -> None:
        self._stt = stt
        self._start: int | None = None
        self._end = 0

    def feed(self, chunk: AudioChunk) -> None:
        """Extend the turn by a chunk."""
        self._start = chunk.start if self._start is None else self._start
        self._end = chunk.end

    async def transcribe(self, is_final: bool) -> Transcript:
        """Return the words of the turn so far. Cancelling changes nothing."""
        start, end = self._start, self._end
        text = "" if start is None else self._stt.spoken.between(start, end)
        await asyncio.sleep(self._stt.seconds)
        return Transcript(text, is_final, end)

    def reset(self) -> None:
        """End the turn."""
        self._start = None


class CallersTurnModel:
    """A turn model that knows whether the turn is over, and answers with ``TURN_OVER`` or ``MORE``."""

    def __init__(self, done: Callable[[], bool], seconds: float = 0.04) -> None:
        self._done = done
        self._seconds = seconds

    async def probability(self, audio: Samples, text: str) -> float:
        """Return the probability that the turn is over. Cancelling changes nothing."""
        await asyncio.sleep(self._seconds)
        return TURN_OVER if self._done() else MORE


class WatchedLlm:
    """Wraps the language model under test; records its prompts and the number of open requests.

    answers_in: None if the model works in virtual time, by sleeping. With a number, virtual time stops while
        the model works, and its first token arrives after this number of virtual seconds. Then the model may
        use threads and sockets, but may not sleep.
    real_time: whether virtual time passes as real time does while the model works.
    """

    def __init__(self, llm: Llm, answers_in: float | None = None, real_time: bool = False) -> None:
        self._llm = llm
        self._answers_in = answers_in
        self._real_time = real_time
        self.prompts: list[list[Message]] = []
        self.open = 0

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer. Closing the generator closes the model's."""
        async with aclosing(self._watched(messages, self._llm.reply(messages))) as tokens:
            async for token in tokens:
                yield token

    async def _watched(
        self, messages: Sequence[Message], made: AsyncGenerator[Any, None]
    ) -> AsyncGenerator[Any, None]:
        self.prompts.append([message.copy() for message in messages])
        self.open += 1
        try:
            async with aclosing(made) as pieces:
                if self._answers_in is None and not self._real_time:
                    async for piece in pieces:
                        yield piece
                    return
                if self._answers_in is not None:
                    await asyncio.sleep(self._answers_in)
                while (piece := await self._next(pieces)) is not None:
                    yield piece
        finally:
            self.open -= 1

    async def _next(self, pieces: AsyncGenerator[Any, None]) -> Any:
        with self._clock():
            return await anext(pieces, None)

    def _clock(self) -> AbstractContextManager[None]:
        return in_real_time() if self._real_time else standing_still()

    async def warm(self, messages: Sequence[Message]) -> None:
        """Warm the model's cache. Cancelling cancels the model's work."""
        if self._answers_in is None and not self._real_time:
            await self._llm.warm(messages)
            return
        with self._clock():
            await self._llm.warm(messages)


class WatchedToolLlm(WatchedLlm):
    """A ``WatchedLlm`` around a model that can call tools."""

    async def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        """Stream the answer and its calls. Closing the generator closes the model's."""
        assert isinstance(self._llm, ToolLlm)
        async with aclosing(self._watched(messages, self._llm.answer(messages, tools))) as pieces:
            async for piece in pieces:
                yield piece


def watched(llm: Llm, answers_in: float | None = None, real_time: bool = False) -> WatchedLlm:
    """Return a wrapper of the language model that can do what the model can; see ``WatchedLlm``."""
    made = WatchedToolLlm if isinstance(llm, ToolLlm) else WatchedLlm
    return made(llm, answers_in, real_time)
