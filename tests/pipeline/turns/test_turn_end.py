"""The model of the end of a turn: its features, its weights, and the plain rules beside them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.pipeline.interfaces import Transcript
from rejoinder.pipeline.turns.turn_end import (
    LIKELY_MORE,
    SHIPPED,
    UNLIKELY,
    PauseEvidence,
    ending,
    features,
    hint,
    odds,
    wait_ms,
    wants_more,
)

OVER = st.none() | st.floats(0.0, 1.0)
ANSWERS = st.lists(st.floats(0.0, 1.0), max_size=6)
TEXTS = st.sampled_from(
    ["", "yes", "that is all.", "and then,", "is it?", "my", "so…", "4 5", '"No."', "ひと"]
)


def test_every_feature_has_a_weight() -> None:
    every = set(features(PauseEvidence([0.5], "hi", end_probability=0.5)))
    assert set(SHIPPED["both"]) == every
    for pause in (
        PauseEvidence(said, "hi", end_probability=over) for said in ([0.5], []) for over in (0.5, None)
    ):
        assert set(features(pause)) == set(SHIPPED[pause.table])
    assert set(SHIPPED["turn_model"]) == every - {"recogniser"}
    assert set(SHIPPED["recogniser"]) == every - {"mean", "lowest"}
    assert set(SHIPPED["neither"]) == every - {"mean", "lowest", "recogniser"}


@pytest.mark.parametrize("table", SHIPPED)
def test_the_weights_point_where_sense_says(table: str) -> None:
    weights = SHIPPED[table]
    assert weights["silence"] > 0 and weights["silence"] + weights["stop_silence"] > 0
    assert weights["stop"] > 0 > weights["open"]
    assert all(weights[name] > 0 for name in ("mean", "lowest", "recogniser") if name in weights)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("That is all.", "stop"),
        ("Stop!", "stop"),
        ('He said "no."', "stop"),
        ("Is it?", "question"),
        ("And then,", "open"),
        ("And then...", "open"),
        ("And then…", "open"),
        ("a poly-", "open"),
        ("And then", None),
        ("", None),
    ],
)
def test_what_words_end_in(text: str, end: str | None) -> None:
    assert [name for name, value in ending(text).items() if value] == ([end] if end else [])


@pytest.mark.parametrize(
    ("text", "asked", "direction"),
    [
        ("my number is", "", -1),
        ("tell me about the", "", -1),
        ("um", "", -1),
        ("where is it at?", "", 0),
        ("that is all", "", 0),
        ("", "", 0),
        ("Yes.", "Hello. Shall I book it?", 1),
        ("no thanks", "Do you want it?", 1),
        ("Yes.", "What do you want?", 0),
        ("yes but", "Do you want it?", -1),
        ("B.", "Please spell your name.", -1),
        ("0 7 5", "What is your phone number?", -1),
        ("A-B-C", "Can you spell it?", -1),
        ("It is Smith.", "Please spell your name.", 0),
        ("at five", "When shall we meet?", 0),
    ],
)
def test_plain_rules(text: str, asked: str, direction: int) -> None:
    assert math.copysign(1, hint(text, asked)) * bool(hint(text, asked)) == direction


@given(ANSWERS, TEXTS, OVER, st.floats(1.1, 100.0), st.floats(300.0, 2_000.0))
def test_the_wait_is_where_the_odds_reach_patience_or_what_an_unsure_end_waits(
    answers: list[float], text: str, over: float | None, patience: float, unsure_ms: float
) -> None:
    pause = PauseEvidence(answers, text, end_probability=over)
    ms = wait_ms(pause, patience, unsure_ms)
    if ms == unsure_ms:
        assert -math.log(LIKELY_MORE) <= odds(replace(pause, silence_ms=ms)) <= math.log(patience)
    elif 1.0 < ms < 1e6:
        assert odds(replace(pause, silence_ms=ms)) == pytest.approx(math.log(patience), abs=1e-6)
    assert wait_ms(pause, 2 * patience, unsure_ms) > ms or ms == unsure_ms
    assert wait_ms(pause, patience, 2 * unsure_ms) >= min(ms, unsure_ms)


def test_a_long_pause_is_an_end_unless_more_is_likely() -> None:
    assert wait_ms(PauseEvidence([0.5], "that is all"), 4.0, 800.0) == 800.0
    assert wait_ms(PauseEvidence([0.2], "that is the"), 4.0, 800.0) > 2_200.0
    assert wait_ms(PauseEvidence([0.2], "that is all", end_probability=0.05), 4.0, 800.0) > 2_000.0
    assert wait_ms(PauseEvidence([0.5], "that is all", end_probability=0.9), 4.0, 800.0) < 400.0


@given(ANSWERS, TEXTS, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_surer_answer_never_makes_the_wait_longer(
    answers: list[float], text: str, one: float, other: float
) -> None:
    low, high = sorted((one, other))
    unsure, sure = (wait_ms(PauseEvidence([*answers, last], text), 5.0, 800.0) for last in (low, high))
    assert sure <= unsure
    unsure, sure = (
        wait_ms(PauseEvidence(answers, text, end_probability=over), 5.0, 800.0) for over in (low, high)
    )
    assert sure <= unsure


def test_an_answer_is_begun_unless_words_or_their_sound_say_that_more_comes() -> None:
    assert not wants_more("that is all") and not wants_more("that is all.", end_probability=UNLIKELY)
    assert (
        wants_more("and then,")
        and wants_more("my")
        and wants_more("that is all.", end_probability=UNLIKELY - 0.01)
    )


@pytest.mark.parametrize("over", [-0.1, 1.1, 90.0, math.nan, math.inf])
def test_what_is_no_probability_is_refused(over: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        Transcript("hi", True, 0, end_probability=over)


def test_weights_that_silence_does_not_help_still_decide() -> None:
    flat = {name: 0.0 for name in SHIPPED["turn_model"]} | {"mean": 1.0}
    tables = {"turn_model": flat}
    assert wait_ms(PauseEvidence([0.9], "hi"), 5.0, 800.0, tables) == 0.0
    assert wait_ms(PauseEvidence([0.5], "hi"), 5.0, 800.0, tables) == 800.0
    assert wait_ms(PauseEvidence([0.1], "hi"), 5.0, 800.0, tables) == math.inf
