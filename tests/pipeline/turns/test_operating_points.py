"""The named settings for the end of a turn."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise

import pytest

from rejoinder.pipeline import POINTS, Endpointing, turn_taking


def test_balanced_is_the_default() -> None:
    assert turn_taking("balanced") == Endpointing()


def test_each_point_waits_at_least_as_long_as_the_one_before() -> None:
    for fast, slow in pairwise(POINTS.values()):
        assert all(asdict(fast)[name] < asdict(slow)[name] for name in asdict(fast))


def test_other_settings_stay() -> None:
    base = Endpointing(assertiveness=0.2, patience=99.0)
    found = turn_taking("eager", base, min_wait_ms=300)
    assert (found.assertiveness, found.min_wait_ms) == (0.2, 300)
    assert found.patience == POINTS["eager"].patience


def test_an_unknown_point_is_refused() -> None:
    with pytest.raises(ValueError, match="one of eager, balanced, patient"):
        turn_taking("hasty")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unsure_wait_ms is 0"):
        turn_taking("eager", unsure_wait_ms=0)
