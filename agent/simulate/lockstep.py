"""Feeding a session faster than real time with the same outcome as in real time, on a machine of any speed.

The floor counts samples, but transcripts and the turn model's answers take time of the clock. Fed as fast as
its channels take it, voice activity runs seconds ahead of the words: a pause that ends a turn in a call would
be over before its transcript is there, and two questions would become one. So the samples stand still while a
listening model works, which is how a call looks to models that take no time at all.
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
"""What a call delivers at a time: 20 ms."""
PASSES = 8
"""Turns of the event loop after which a block has reached every model that it is going to reach.

It takes four: one to the voice activity stage, one until that has judged, one to the transcribing stage, one
to the turn model's task.
"""


class Lockstep:
    """Hands a recording to a session block by block, each when all that came of the last one is decided."""

    def __init__(self) -> None:
        self._working = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def wrap(self, models: Models) -> Models:
        """Return the same models, which from now on say here when they work."""
        turn = _Watched(models.turn, self) if models.turn else None
        return replace(models, stt=_WatchedStt(models.stt, self), turn=turn)

    async def feed(self, session: Session, pcm: bytes, take: Callable[[Event], None]) -> None:
        """Give 16 kHz audio to a session with wrapped models, and what happens in it to ``take``.

        Nobody else may read the session's events. After the end of a turn the reply is waited for, and its
        playing out. Empty audio only waits. Cancelling leaves the rest of the audio out.
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
            if session.turn and session.turn.committed and session.turn.task:
                await asyncio.wait([session.turn.task])

    @contextmanager
    def working(self) -> Iterator[None]:
        """Hold the audio back for the length of the block."""
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
    """A turn model whose work is noticed."""

    def __init__(self, model: TurnModel, lockstep: Lockstep) -> None:
        self._model = model
        self._lockstep = lockstep

    async def probability(self, audio: Samples, text: str) -> float:
        """Ask the model."""
        with self._lockstep.working():
            return await self._model.probability(audio, text)


class _WatchedStt:
    """A recogniser whose work is noticed."""

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
        """Ask the model."""
        with self._lockstep.working():
            return await self._stream.transcribe(is_final=is_final)
