"""Decides how long a caller waits for the first word and the first clause of a language model."""

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
START_CLAUSE_DEADLINE = 1.5
"""Seconds from the first word to the first clause, before a model is measured."""
SHORTEST_CLAUSE_DEADLINE = 0.8
"""Shortest deadline of the first clause that follows from measurements."""
CLAUSE_FACTOR = 2.0
"""Multiple of the measured p95 for the first clause. A first word shows that the model works, so a second
request is sent for fewer turns than at the deadline of the first word."""


class Waits:
    """How long the last requests of one model took for the same step, in seconds."""

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


def first_clause_deadline(configured: float | None, p95: float | None, is_last: bool) -> float:
    """Return the seconds from the first word to the first clause after which the next model is asked.

    A model that dribbles has a first word in time, and then takes seconds for words that can be spoken.

    configured: the setting ``first_clause_s``, None where it is not set. p95: of this model, None while it is
    unknown. is_last: whether no other model can take over.
    """
    if configured is not None or is_last:
        return first_word_deadline(configured, p95, is_last)
    if p95 is None:
        return START_CLAUSE_DEADLINE
    return min(max(CLAUSE_FACTOR * p95, SHORTEST_CLAUSE_DEADLINE), LONGEST_DEADLINE)


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
