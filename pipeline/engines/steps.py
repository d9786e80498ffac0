"""The steps of an engine: the one that runs, their totals, and after how long one is slow."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

RECENT_STEPS = 500
"""Steps whose durations are kept."""
LEAST_STEPS = 20
"""Least number of steps that tell what is usual."""
SLOW_SHARE = 0.99
"""The share of the steps that is not slow."""
TIMES_THE_USUAL = 3.0
"""A step is slow after this number of times the duration that ``SLOW_SHARE`` of the steps stay below."""
LEAST_SLOW_SECONDS = 0.1
"""No step is slow before this time, in seconds. A busy machine delays any thread for some of it."""


class AtWork(Protocol):
    """What says whether it is at work: an engine, or what stands for one in another process."""

    @property
    def running(self) -> bool:
        """Whether it works at this moment."""


@dataclass(frozen=True, slots=True, eq=False)
class EngineStep:
    """A step that runs.

    began: in seconds of ``time.perf_counter``. thread: the identifier of its thread. calls: the ids of its
    calls, separated by blanks. pressing: whether its first job is due soon.
    """

    began: float
    thread: int
    calls: str
    pressing: bool


@dataclass(slots=True)
class EngineStats:
    """Totals of an engine since its start.

    steps: steps that ran. jobs: jobs in these steps; several jobs in one step are a batch.
    dropped: jobs cancelled before they ran.
    failed: steps that raised an error or were given up. in_a_row: those since the last step that succeeded.
    handed_over: slow steps beside which another thread took the jobs of other calls.
    replaced: threads that ended or hung, and that another one replaced, unless it was ``handed_over`` before.
    recent: seconds of each of the last ``RECENT_STEPS`` steps.
    busy: seconds in which a step ran. pressing: seconds in which one ran whose first job was due soon. Steps
        that run beside each other count once.
    waited: seconds that jobs waited for their step, added up.
    batches: number of steps by the size of their batch.
    """

    steps: int = 0
    jobs: int = 0
    dropped: int = 0
    failed: int = 0
    in_a_row: int = 0
    handed_over: int = 0
    replaced: int = 0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))
    busy: float = 0.0
    pressing: float = 0.0
    waited: float = 0.0
    batches: Counter[int] = field(default_factory=Counter)


def slow_after(recent: Sequence[float], most: float) -> float:
    """Return the seconds after which a step is slow, in comparison with the last ones of its engine.

    recent: their durations in seconds. most: the result for an engine with fewer than ``LEAST_STEPS`` steps,
    and the largest result.
    """
    if len(recent) < LEAST_STEPS:
        return most
    usual = sorted(recent)[math.ceil(SLOW_SHARE * len(recent)) - 1]
    return min(most, max(LEAST_SLOW_SECONDS, TIMES_THE_USUAL * usual))
