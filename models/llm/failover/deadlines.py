"""Decides how long a caller waits for the first word of a language model."""

from __future__ import annotations

import math
from collections import deque

START_DEADLINE = 1.5
"""First-token deadline of a model that has not answered often enough to be measured."""
SHORTEST_DEADLINE = 0.4
"""Shortest deadline that follows from measurements: a second request costs money and load."""
LONGEST_DEADLINE = 4.0
"""Longest deadline that follows from measurements: silence beyond it sounds like a broken line."""
LAST_DEADLINE = 8.0
"""Deadline of a model that no other one can replace, before it is measured."""
LAST_FACTOR = 4.0
"""A model that no other one can replace gets this multiple of its p95, within the two limits above."""
MEASURED_CALLS = 50
"""Most recent first words that are measured."""
LEAST_MEASURED = 10
"""Fewest measurements of which a 95th percentile says something."""


class FirstWords:
    """The seconds from a request to its first word, for the last requests of one model."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=MEASURED_CALLS)

    def add(self, seconds: float) -> None:
        """Record one request. For one that was given up, ``seconds`` is how long it was waited for."""
        self._seconds.append(seconds)

    def p95(self) -> float | None:
        """Return the 95th percentile, None before ``LEAST_MEASURED`` requests."""
        if len(self._seconds) < LEAST_MEASURED:
            return None
        return sorted(self._seconds)[math.ceil(0.95 * len(self._seconds)) - 1]


def first_word_deadline(configured: float | None, p95: float | None, is_last: bool) -> float:
    """Return the seconds after which the next model is asked, or the caller hears an apology.

    A second request after the 95th percentile doubles the requests of one caller in twenty at most (Dean and
    Barroso, The Tail at Scale, 2013).

    configured: the setting ``first_token_s``, None where it is not set; it overrides the measurement. p95: of
    this model, None while it is unknown. is_last: whether no other model can take over.
    """
    if configured is not None:
        return configured
    if is_last:
        return LAST_DEADLINE if p95 is None else min(max(LAST_FACTOR * p95, LONGEST_DEADLINE), LAST_DEADLINE)
    return START_DEADLINE if p95 is None else min(max(p95, SHORTEST_DEADLINE), LONGEST_DEADLINE)
