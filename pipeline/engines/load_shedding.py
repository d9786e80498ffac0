"""Load shedding: which work to skip when the machine cannot do all of it in time.

It skips work that only improves replies, step by step. From the first step on it also refuses new calls for
which there is no room, so that current calls are answered in time.
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
"""Largest share of its time that an engine may spend on pressing work. Above it, random arrivals queue."""
TARGET_SECONDS = 0.6
"""Target for the mean time to make a reply. One reply in twenty takes 1.5 times as long; with the wait for
the end of the turn, that is one second (docs/lab/capacity.md)."""
MOST_REPLY_SECONDS = 1.0
"""Limit of the predicted mean time to make a reply; above it a new call is refused."""
RECENT_SECONDS = 10.0
"""Ignore replies older than this, in seconds; a call without a newer reply is not active."""
SMOOTH_SECONDS = 5.0
"""Time constant of the mean in ``Load.busy``, so that a single burst of work is not load."""
UP_SECONDS = 3.0
"""Least time on a level before the next higher one."""
DOWN_SECONDS = 10.0
"""Least time on a level before the next lower one."""
STEP_DOWN_SHARE = 0.75
"""Step down below this share of the step-up threshold."""
BEHIND_SECONDS = 0.3
"""An engine is behind if a job has waited longer than this, whatever the mean load."""


class LoadLevel(IntEnum):
    """The work that is skipped; each level includes the lower ones."""

    NOTHING = 0
    """All work is done."""
    PARTIALS = 1
    """Partial transcripts between dips of the level: there are fewer of them."""
    WINDOW = 2
    """The part of the recogniser's window that the audio does not fill; and the larger language model, where
    a smaller one is there for that (``busy_llm``)."""
    LENGTH = 3
    """The rest of a long reply: it ends with a sentence."""
    NEW_CALLS = 4
    """The same as ``LENGTH``: no other work is left to skip, and there is still no room for a call that was
    refused. Calls are refused from ``PARTIALS`` on."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load in the last seconds.

    busy: share of its time that the busiest engine spends on pressing work. Other work fills the rest of the
        time, and becomes pressing when its slack is used up.
    answer: mean seconds to make a reply.
    callers: mean number of active callers, smoothed as ``busy`` is, so that their quotient stays right while
        many calls begin or end.
    """

    busy: float = 0.0
    answer: float = 0.0
    callers: float = 0.0

    def busy_with(self, callers: float) -> float:
        """Return ``busy`` predicted for this many callers: by Little's law it is proportional to them."""
        return self.busy * callers / self.callers if self.callers else self.busy

    @property
    def alone(self) -> float:
        """The seconds to make a reply on an otherwise idle machine.

        With processor sharing, the time in a system is the time alone divided by the free share of the
        machine (Kleinrock 1976).
        """
        return self.answer * (1.0 - self.busy)

    def predicted(self, callers: float) -> float:
        """Return the seconds to make a reply predicted for this many callers."""
        free = 1.0 - self.busy_with(callers)
        return self.alone / free if free > 0.0 else math.inf

    def room(self, callers: float) -> bool:
        """Return whether this many callers stay within ``MOST_BUSY`` and ``MOST_REPLY_SECONDS``."""
        slow = self.alone < TARGET_SECONDS and self.predicted(callers) > MOST_REPLY_SECONDS
        return self.busy_with(callers) <= MOST_BUSY and not slow

    def strain(self, callers: float) -> float:
        """Return the load of this many callers as a share of the limits; above 1 it exceeds one of them.

        The time of replies counts only if a single caller would be answered in time.
        """
        late = self.predicted(callers) / TARGET_SECONDS if self.alone < TARGET_SECONDS else 0.0
        return max(self.busy_with(callers) / MOST_BUSY, late)


def next_level(level: LoadLevel, load: Load, since: float, wanted: bool = False) -> LoadLevel:
    """Return the level that follows after ``since`` seconds on ``level``.

    wanted: whether a call was refused recently, for which a higher level may make room.
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
    """Chooses the load level for all calls of a process. It changes only when ``look`` is called.

    The caller passes the times, in seconds of one clock.

    engines: the engines whose load is measured.
    level: the current level. load: the last measurement.
    shares: for each engine, the share of its time spent on work and on pressing work, smoothed.
    """

    def __init__(self, engines: Sequence[Engine[Any, Any]] = ()) -> None:
        self.engines = list(engines)
        self.level = LoadLevel.NOTHING
        self.load = Load()
        self.shares = [(0.0, 0.0) for _ in engines]
        self._worked = [(engine.stats.busy, engine.stats.pressing) for engine in engines]
        self._looked: float | None = None
        self._stepped = 0.0
        self._answers: deque[tuple[float, float]] = deque(maxlen=1024)
        self._calls: dict[int, float] = {}
        self._callers = 0.0
        self._refused = -math.inf

    def watch(self, engines: Sequence[Engine[Any, Any]]) -> None:
        """Measure further engines from now on."""
        self.engines += engines
        self.shares += [(0.0, 0.0) for _ in engines]
        self._worked += [(engine.stats.busy, engine.stats.pressing) for engine in engines]

    @property
    def behind(self) -> bool:
        """Whether a job has waited for an engine longer than ``BEHIND_SECONDS``."""
        return any(engine.age > BEHIND_SECONDS for engine in self.engines)

    @property
    def pressing(self) -> bool:
        """Whether an engine is working on something that is due soon."""
        return any(engine.pressing for engine in self.engines)

    def joined(self, call: int, now: float) -> None:
        """Record the start of a call; it counts as active for ``RECENT_SECONDS``."""
        self._calls[call] = now

    def answered(self, call: int, seconds: float, now: float) -> None:
        """Record the seconds it took to make a reply, without the wait for the end of the turn."""
        self._calls[call] = now
        self._answers.append((now, seconds))

    def left(self, call: int) -> None:
        """Record the end of a call."""
        self._calls.pop(call, None)

    def refuse(self, now: float) -> str:
        """Return the reason to refuse a new call, "" to accept it.

        No call is refused at level NOTHING, or while no call is active. A refusal lets the level go up.
        """
        active = self._active(now)
        if not active or self.level == LoadLevel.NOTHING or self.load.room(active + 1):
            return ""
        self._refused = now
        return f"all lines are busy: {active} callers are as many as can be answered in time"

    def look(self, now: float) -> None:
        """Measure the load, and move up or down by one level at most. Call it about once a second."""
        if self._looked is None:
            self._looked = self._stepped = now
        if now > self._looked:
            self._measure(now - self._looked, self._active(now))
            self._looked = now
        while self._answers and now - self._answers[0][0] > RECENT_SECONDS:
            self._answers.popleft()
        mean = sum(seconds for _, seconds in self._answers) / len(self._answers) if self._answers else 0.0
        self.load = Load(max((pressing for _, pressing in self.shares), default=0.0), mean, self._callers)
        wanted = now - self._refused < DOWN_SECONDS
        level = next_level(self.level, self.load, now - self._stepped, wanted)
        if level != self.level:
            log.info("%s: %s -> %s", self.load, self.level.name, level.name)
            self.level, self._stepped = level, now
            self._answers.clear()  # only replies made on this level decide the next step

    def _active(self, now: float) -> int:
        return sum(now - last <= RECENT_SECONDS for last in self._calls.values())

    def _measure(self, passed: float, active: int) -> None:
        weight = 1.0 - math.exp(-passed / SMOOTH_SECONDS)
        self._callers += weight * (active - self._callers)

        def smoothed(share: float, before: float, after: float) -> float:
            return share + weight * (min((after - before) / passed, 1.0) - share)

        worked = [(engine.stats.busy, engine.stats.pressing) for engine in self.engines]
        known = zip(self.shares, self._worked, worked, strict=True)
        self.shares = [
            (smoothed(busy, old[0], new[0]), smoothed(pressing, old[1], new[1]))
            for (busy, pressing), old, new in known
        ]
        self._worked = worked
