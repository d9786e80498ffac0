"""What a machine does where more is asked of it than it can do in time: less, one rung after the other.

What the calls that there are need goes before new calls, and what is heard of an answer before what only
makes it better.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from rejoinder.pipeline.engines.engine import Engine

log = logging.getLogger(__name__)

MOST_BUSY = 0.85
"""The share of its time that an engine may spend on what is pressing: above, who comes by chance waits."""
TARGET_SECONDS = 0.6
"""What making an answer may take at the mean. One in twenty takes half as much again, and the wait for the
end of the turn comes on top of it: together a second (docs/lab/capacity.md)."""
MOST_SECONDS = 1.0
"""What it may take at the mean before a new call is refused rather than all wait longer for it."""
WINDOW_SECONDS = 10.0
"""Answers that are so old tell nothing about now, and who had none since is not active."""
SMOOTH_SECONDS = 5.0
"""The time constant of the mean that ``busy`` is: one burst of work is no load."""
UP_SECONDS, DOWN_SECONDS = 3.0, 10.0
"""So long it stays on a rung at least before the next one, and before the last one again."""
STEP_DOWN_SHARE = 0.75
"""A rung is left downwards when so much of what would lead up to it is reached."""
BEHIND_SECONDS = 0.3
"""Work that has waited so long for an engine tells that it is behind, whatever the mean."""


class LoadLevel(IntEnum):
    """What is left out; each rung leaves out what those below it do, too."""

    NOTHING = 0
    PARTIALS = 1
    WINDOW = 2
    LENGTH = 3
    NEW_CALLS = 4


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured of late.

    busy: the share of its time that the busiest engine spends on what is pressing. What has time fills the
    rest, and moves over into it when it has none any more. answer: mean seconds that making an answer
    takes. callers: who had answers.
    """

    busy: float = 0.0
    answer: float = 0.0
    callers: int = 0

    def busy_with(self, callers: int) -> float:
        """Return how busy so many callers would keep it: by Little's law, what comes times what it takes."""
        return self.busy * callers / self.callers if self.callers else self.busy

    @property
    def alone(self) -> float:
        """Return the seconds that making an answer would take if nothing else were going on.

        The time in a queue that serves all in turn is the work alone over the share of time that is free
        (processor sharing, Kleinrock 1976).
        """
        return self.answer * (1.0 - self.busy)

    def predicted(self, callers: int) -> float:
        """Return the seconds that making an answer would take with so many callers."""
        free = 1.0 - self.busy_with(callers)
        return self.alone / free if free > 0.0 else math.inf

    def room(self, callers: int) -> bool:
        """Tell whether so many callers are bearable, at the worst."""
        slow = self.alone < TARGET_SECONDS and self.predicted(callers) > MOST_SECONDS
        return self.busy_with(callers) <= MOST_BUSY and not slow

    def strain(self, callers: int) -> float:
        """Return how much of what is good is reached with so many callers, above 1 where it is more.

        Answers that would take too long without any other caller are no matter of load.
        """
        late = self.predicted(callers) / TARGET_SECONDS if self.alone < TARGET_SECONDS else 0.0
        return max(self.busy_with(callers) / MOST_BUSY, late)


def next_level(level: LoadLevel, load: Load, since: float, wanted: bool = False) -> LoadLevel:
    """Return the rung on which to stand after ``since`` seconds on this one.

    wanted: whether a call was turned away of late, for which another rung may make room.
    """
    if level < LoadLevel.NEW_CALLS and since >= UP_SECONDS:
        no_room = wanted and not load.room(load.callers + 1)
        if no_room or (level < LoadLevel.LENGTH and load.strain(load.callers) > 1.0):
            return LoadLevel(level + 1)
    if (
        level > LoadLevel.NOTHING
        and since >= DOWN_SECONDS
        and not wanted
        and load.strain(load.callers) < STEP_DOWN_SHARE
    ):
        return LoadLevel(level - 1)
    return level


class LoadShedder:
    """The rung on which all calls of a process stand: the lowest, unless it may ``look`` now and then.

    Times are handed in, in seconds of one clock. shares: of its time that each engine has worked of late, and
    has worked on what was pressing.
    """

    def __init__(self, engines: Sequence[Engine[Any, Any]] = ()) -> None:
        self.engines = engines
        self.level = LoadLevel.NOTHING
        self.load = Load()
        self.shares = [(0.0, 0.0) for _ in engines]
        self._worked = [(engine.stats.busy, engine.stats.pressing) for engine in engines]
        self._looked: float | None = None
        self._stepped = 0.0
        self._answers: deque[tuple[float, int, float]] = deque(maxlen=1024)
        self._calls: dict[int, float] = {}
        self._refused = -math.inf

    @property
    def behind(self) -> bool:
        """Tell whether work waits at this moment that has waited for long."""
        return any(engine.age > BEHIND_SECONDS for engine in self.engines)

    @property
    def pressing(self) -> bool:
        """Tell whether an engine of this process works at this moment on what is due soon."""
        return any(engine.pressing for engine in self.engines)

    def joined(self, call: int, now: float) -> None:
        """Note that a call has begun; for a while it counts as if there had been an answer."""
        self._calls[call] = now

    def answered(self, call: int, seconds: float, now: float) -> None:
        """Note that making an answer took so long, the wait for the end of the turn not counted."""
        self._calls[call] = now
        self._answers.append((now, call, seconds))

    def left(self, call: int) -> None:
        """Note that a call is over."""
        self._calls.pop(call, None)

    def refuse(self, now: float) -> str:
        """Return why no new call is taken, "" where one is.

        Nobody is refused before something is left out, or where nobody talks. Who finds no room makes the
        ladder go up.
        """
        active = sum(now - last <= WINDOW_SECONDS for last in self._calls.values())
        if not active or self.level == LoadLevel.NOTHING or self.load.room(active + 1):
            return ""
        self._refused = now
        return f"all lines are busy: {active} callers are as many as can be answered in time"

    def look(self, now: float) -> None:
        """Measure, and go up or down."""
        if self._looked is None:
            self._looked = self._stepped = now
        if now > self._looked:
            self._measure(now - self._looked)
            self._looked = now
        while self._answers and now - self._answers[0][0] > WINDOW_SECONDS:
            self._answers.popleft()
        seconds = [seconds for _, _, seconds in self._answers]
        callers = len({call for _, call, _ in self._answers})
        mean = sum(seconds) / len(seconds) if seconds else 0.0
        self.load = Load(max((pressing for _, pressing in self.shares), default=0.0), mean, callers)
        wanted = now - self._refused < DOWN_SECONDS
        level = next_level(self.level, self.load, now - self._stepped, wanted)
        if level != self.level:
            log.info("%s: %s -> %s", self.load, self.level.name, level.name)
            self.level, self._stepped = level, now
            self._answers.clear()  # the next step is for answers to decide that were made on this rung

    def _measure(self, passed: float) -> None:
        weight = 1.0 - math.exp(-passed / SMOOTH_SECONDS)

        def smoothed(share: float, before: float, after: float) -> float:
            return share + weight * (min((after - before) / passed, 1.0) - share)

        worked = [(engine.stats.busy, engine.stats.pressing) for engine in self.engines]
        known = zip(self.shares, self._worked, worked, strict=True)
        self.shares = [
            (smoothed(busy, old[0], new[0]), smoothed(pressing, old[1], new[1]))
            for (busy, pressing), old, new in known
        ]
        self._worked = worked
