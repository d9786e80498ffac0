"""Patience grows when the agent cuts the user off, and resets after turns that were heard out."""

from __future__ import annotations

import pytest

from rejoinder.pipeline.audio.chunk import in_samples
from rejoinder.pipeline.turns.patience import (
    CUT_OFF_UNSURE_MS,
    GROWTH,
    HEARD_OUT_TURNS,
    MOST_PATIENCE,
    TOO_SOON_MS,
    Patience,
)

UNSURE_MS = 800.0


def cut_off(patience: Patience, after_ms: int, at: int = 16_000) -> None:
    """The agent answers a turn at sample ``at``, and the user speaks again."""
    patience.turn_answered(at)
    patience.agent_interrupted(at + in_samples(after_ms), 1.0)


def test_an_interruption_before_any_answer_is_no_cut_off() -> None:
    patience = Patience()
    patience.agent_interrupted(0, 1.0)
    assert patience.applied(1.0, UNSURE_MS) == (1.0, UNSURE_MS)


@pytest.mark.parametrize(("after_ms", "expected"), [(TOO_SOON_MS - 1, GROWTH), (TOO_SOON_MS, 1.0)])
def test_only_an_early_interruption_raises_patience(after_ms: int, expected: float) -> None:
    patience = Patience()
    cut_off(patience, after_ms)
    assert patience.applied(1.0, UNSURE_MS)[0] == expected


def test_patience_grows_up_to_its_limit() -> None:
    patience = Patience()
    grown = []
    for _ in range(5):
        cut_off(patience, 0)
        grown.append(patience.applied(1.0, UNSURE_MS))
    assert [odds for odds, _ in grown] == [GROWTH, GROWTH**2, GROWTH**3, MOST_PATIENCE, MOST_PATIENCE]
    assert {unsure for _, unsure in grown} == {CUT_OFF_UNSURE_MS}


def test_a_session_that_is_more_patient_keeps_its_own_patience() -> None:
    patience = Patience()
    cut_off(patience, 0)
    assert patience.applied(GROWTH, UNSURE_MS) == (GROWTH, UNSURE_MS)
    assert patience.applied(10.0, 1_400.0) == (10.0, 1_400.0)
    assert patience.applied(1.0, 1_400.0) == (GROWTH, 1_400.0)


def test_extra_patience_resets_after_turns_that_were_heard_out() -> None:
    patience = Patience()
    cut_off(patience, 0)
    for turn in range(HEARD_OUT_TURNS):
        patience.turn_answered(100_000 * turn)
    assert patience.applied(1.0, UNSURE_MS)[0] == GROWTH
    patience.turn_answered(900_000)
    assert patience.applied(1.0, UNSURE_MS)[0] == 1.0
