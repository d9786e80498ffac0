"""What goes between a call server and a replica."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rejoinder.pipeline.engines import call_id, deadline
from rejoinder.pipeline.engines.deadline import Deadline


@dataclass(frozen=True, slots=True)
class Work:
    """How soon a call needs a result. Machines have different clocks, so it counts from the arrival.

    slack: seconds left. frugal: whether a cheaper result is enough. call: id of the call, for the log.
    """

    slack: float | None
    frugal: bool
    call: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the engines in the block this deadline and this id."""
        due = None if self.slack is None else Deadline(self.slack, frugal=self.frugal)
        wanted, caller = deadline.current.set(due), call_id.current.set(self.call)
        try:
            yield
        finally:
            deadline.current.reset(wanted)
            call_id.current.reset(caller)


def work() -> Work:
    """Return the deadline and the call of the current task."""
    wanted = deadline.current.get()
    left = None if wanted is None else wanted.left(asyncio.get_running_loop().time())
    return Work(left, wanted is not None and wanted.frugal, call_id.current.get())


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
