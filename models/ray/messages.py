"""What goes between a call server and a replica."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rejoinder.pipeline.engines import call_id, deadline
from rejoinder.pipeline.engines.deadline import Deadline


@dataclass(slots=True)
class Work:
    """How soon a call needs a result, and for which call it is.

    left: seconds left when it was sent; None for work that is due at once. is_due: whether they run down, as
    those of certain work do; machines have different clocks, so they run from the arrival. frugal: whether a
    cheaper result is enough. call: id of the call, for the log.
    """

    left: float | None
    is_due: bool
    frugal: bool
    call: str
    _here: Deadline | None = field(default=None, init=False, compare=False)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the engines in the block this deadline and this id."""
        wanted, caller = deadline.current.set(self._deadline()), call_id.current.set(self.call)
        try:
            yield
        finally:
            deadline.current.reset(wanted)
            call_id.current.reset(caller)

    def later(self, seconds: float) -> None:
        """Let the rest of the work be due ``seconds`` later: so much audio is there to be played."""
        here = self._deadline()
        if here is not None and here.due is not None:
            here.due += seconds

    def _deadline(self) -> Deadline | None:
        if self._here is None and self.left is not None:
            due = asyncio.get_running_loop().time() + self.left if self.is_due else None
            self._here = Deadline(self.left, due, frugal=self.frugal)
        return self._here


def work() -> Work:
    """Return the deadline and the call of the current task."""
    wanted, caller = deadline.current.get(), call_id.current.get()
    if wanted is None:
        return Work(None, False, False, caller)
    left = wanted.left(asyncio.get_running_loop().time())
    return Work(left, wanted.due is not None, wanted.frugal, caller)


@dataclass(frozen=True, slots=True)
class TurnAudio:
    """The part of a turn's audio that a replica may not have yet, and a request for the words.

    session: id of the session. turn: number of the turn in the session, from 0. at: samples of the turn
    before ``pcm``. start: index of the turn's first sample in the session's audio. pcm: little-endian 16-bit
    samples at 16 kHz.
    """

    session: str
    turn: int
    at: int
    start: int
    pcm: bytes
    is_final: bool
    work: Work


@dataclass(frozen=True, slots=True)
class Missing:
    """A replica has only the first ``have`` samples of a turn: it wants the rest."""

    have: int
