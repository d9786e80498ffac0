"""How soon work is needed: what the engines go by, and whoever asks for it sets.

Earliest deadline first (Liu and Layland 1973). The deadlines move while the work waits: a guess becomes the
answer, and a reply that sounds is needed again when it runs dry. So each session's work carries an object
that its owner changes, and an engine reads it each time that it takes work.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

GUESS_SECONDS = 0.25
"""What may become the answer is due so long after it is looked at: before speech that has more left."""
PARTIAL_SECONDS = 0.5
"""The same of what only helps: words that are not final, and prompts that are read ahead."""
SPARE_SECONDS = math.inf
"""The same of what nobody waits for on a telephone: it comes last."""


@dataclass(slots=True, eq=False)
class Deadline:
    """How soon something is needed. It may be read on any thread.

    slack: seconds in which it would do, from whenever it is looked at, while nobody waits for it for sure.
    due: the loop time at which somebody waits for it, None where that is not sure. frugal: less will do.
    """

    slack: float = GUESS_SECONDS
    due: float | None = None
    frugal: bool = False

    def left(self, now: float) -> float:
        """Return the seconds that are left, below 0 where somebody waits already."""
        return self.slack if self.due is None else self.due - now


current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)
"""Of the work that a task does, and the tasks that it starts."""


def first(waiting: Sequence[tuple[float, Hashable]], most: int) -> list[int]:
    """Return the places of what runs next, together: the most urgent one, and others that are like it.

    waiting: the seconds that are left to each, and what it must have in common with others to run with them;
    in the order in which they came, which decides between equals.
    """
    order = sorted(range(len(waiting)), key=lambda place: waiting[place][0])
    alike = [place for place in order if waiting[place][1] == waiting[order[0]][1]]
    return alike[:most]
