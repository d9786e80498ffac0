"""Observations of ends and pauses that a rule can learn from."""

from __future__ import annotations

import numpy as np

from rejoinder.agent.bench.turns.rules import Observation
from rejoinder.models.turn.smart_turn import SIZE

SAID = 96
DRAW = np.random.default_rng(0)


def observed(speaker: int, over: bool, sure: float) -> Observation:
    """Return an end or a pause of 1 s that the turn model judges correctly, with this much noise."""
    *sounds, ending = [DRAW.normal(0, 1, width).astype(np.float32) for width in (SIZE, SIZE, SIZE, SAID)]
    for sound in (*sounds, ending):
        sound[0] += 3.0 if over else -3.0
    judged = tuple((150.0 * 2**ask, sure if over else 1.0 - sure) for ask in range(3))
    words = "that is all." if over else "and then"
    ends = None if over else 1000.0
    who = f"who{speaker}"
    return Observation(
        "s", "f", who, False, 50.0, judged, words, 130.0, ends, tuple(sounds), ending, 0.5, "tiny.en"
    )


SEEN = [observed(speaker, over, 0.7) for speaker in range(24) for over in (True, False)]
"""Two observations of each of 24 speakers."""
