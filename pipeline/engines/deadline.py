"""Deadlines: how soon a session needs the work that waits in an engine.

Engines run the earliest deadline first (Liu and Layland 1973). Deadlines move while the work waits. For
example, a guess becomes the reply, or a reply needs more audio when its audio runs out. So each piece of work
refers to a ``Deadline`` that its owner changes, and the engine reads it whenever it takes work.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

GUESS_SECONDS = 0.25
"""Slack of work that may become the reply."""
PARTIAL_SECONDS = 0.5
"""Slack of optional work: partial transcripts and prompts that are read ahead."""
SPARE_SECONDS = math.inf
"""Slack of background requests: they run last."""


@dataclass(slots=True, eq=False)
class Deadline:
    """How soon a piece of work is needed. Any thread may read it.

    slack: seconds from the time of reading until the work is due, while ``due`` is None.
    due: loop time at which the work is needed, None while it is not certain that it is needed.
    frugal: whether a cheaper result is enough.
    certain: whether the work is needed although ``due`` is None: text has no play-out that could run dry.
    """

    slack: float = GUESS_SECONDS
    due: float | None = None
    frugal: bool = False
    certain: bool = False

    def left(self, now: float) -> float:
        """Return the seconds left until the work is due; below 0 if it is late."""
        return self.slack if self.due is None else self.due - now


current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)
"""The deadline of the current task's work; the tasks that it starts inherit it."""


def first(waiting: Sequence[tuple[float, Hashable]], most: int) -> list[int]:
    """Return the indexes of the jobs that run next, in one batch: the most urgent one and others of its kind.

    waiting: for each job, the seconds left and its kind, in the order of arrival. Only jobs of one kind run
    together; between equal deadlines the earlier job comes first. most: largest size of the batch.
    """
    order = sorted(range(len(waiting)), key=lambda place: waiting[place][0])
    alike = [place for place in order if waiting[place][1] == waiting[order[0]][1]]
    return alike[:most]
