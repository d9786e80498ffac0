"""Feeds a session faster than real time, with the same result as in real time on any machine.

The floor counts samples, but transcripts and the turn model's answers take real time. If the audio were fed
as fast as the channels accept it, voice activity would run seconds ahead of the transcripts: a pause would be
over before its transcript exists, and two questions would become one turn. So the feed waits while a
listening model works. To the session, the models then seem to take no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rejoinder.pipeline import (
    RATE,
    EndOfTurn,
    Event,
    Models,
    ReplyDone,
    Session,
    Stt,
    SttStream,
    Transcript,
    TurnModel,
)
from rejoinder.pipeline.audio.chunk import Samples

BLOCK_BYTES = 2 * RATE // 50
"""Bytes of one block of audio: 20 ms."""
PASSES = 8
"""Turns of the event loop after which a block has reached all models that it will reach.

It takes four: one to the voice activity stage, one until that stage decides, one to the transcribing stage,
one to the task of the turn model.
"""


class Lockstep:
    """Feeds a recording to a session block by block; each block waits for the decisions on the last one."""

    def __init__(self) -> None:
        self._working = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def wrap(self, models: Models) -> Models:
        """Return the models in wrappers that report to this object while they work."""
        turn = _Watched(models.turn, self) if models.turn else None
        return replace(models, stt=_WatchedStt(models.stt, self), turn=turn)

    async def feed(self, session: Session, pcm: bytes, take: Callable[[Event], None]) -> None:
        """Feed audio to a session with wrapped models, and pass its events to ``take``.

        pcm: 16-bit mono at 16 kHz; empty audio only waits. No other task may read the session's events. After
        the end of a turn, this waits for the reply and its play-out. Cancelling drops the rest of the audio.
        """
        for first in range(0, max(1, len(pcm)), BLOCK_BYTES):
            if block := pcm[first : first + BLOCK_BYTES]:
                await session.hear(block)
            await self._settle()
            replying = False
            while replying or len(session.events):
                event = await session.events.receive()
                take(event)
                replying = isinstance(event, EndOfTurn) or (replying and not isinstance(event, ReplyDone))
            if session.reply and session.reply.committed and session.reply.task:
                await asyncio.wait([session.reply.task])

    @contextmanager
    def working(self) -> Iterator[None]:
        """Hold the audio back while the block runs."""
        self._working += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._working -= 1
            if not self._working:
                self._idle.set()

    async def _settle(self) -> None:
        quiet = 0
        while quiet < PASSES:
            await asyncio.sleep(0)
            quiet = 0 if self._working else quiet + 1
            await self._idle.wait()


class _Watched:
    """A turn model that reports when it works."""

    def __init__(self, model: TurnModel, lockstep: Lockstep) -> None:
        self._model = model
        self._lockstep = lockstep

    async def probability(self, audio: Samples, text: str) -> float:
        """Return the model's probability. Cancelling cancels the model's work."""
        with self._lockstep.working():
            return await self._model.probability(audio, text)


class _WatchedStt:
    """A recogniser that reports when it works."""

    def __init__(self, model: Stt, lockstep: Lockstep) -> None:
        self._model = model
        self._lockstep = lockstep

    def stream(self) -> SttStream:
        """Open the state of one session."""
        return _WatchedSttStream(self._model.stream(), self._lockstep)


class _WatchedSttStream:
    """The stream of one session."""

    def __init__(self, stream: SttStream, lockstep: Lockstep) -> None:
        self._stream = stream
        self._lockstep = lockstep
        self.feed = stream.feed
        self.reset = stream.reset

    async def transcribe(self, is_final: bool) -> Transcript:
        """Return the model's transcript. Cancelling cancels the model's work."""
        with self._lockstep.working():
            return await self._stream.transcribe(is_final=is_final)
