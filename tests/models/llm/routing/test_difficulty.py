"""Easy and hard questions: features of words only, and weights that the fit makes again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.agent.bench.cases.recordings import RecordingsMissing, speech_folder
from rejoinder.agent.bench.routing.fit import fit, labelled
from rejoinder.models.llm.routing.difficulty import DIFFICULTY_FILE, features, judge, probability
from rejoinder.pipeline.words import normalise


@pytest.mark.parametrize(
    ("text", "difficulty"),
    [
        ("How are you?", "easy"),
        ("Can you repeat that?", "easy"),
        ("What is your name?", "easy"),
        ("Goodbye!", "easy"),
        ("Why is the sky blue?", "hard"),
        ("What is 17 times 23?", "hard"),
        ("Explain the difference between a Roth IRA and a 401k.", "hard"),
        ("What is the weather in Paris tomorrow?", "hard"),
        ("", "hard"),
        ("...", "hard"),
        ("how are you " * 100, "hard"),
    ],
)
def test_what_is_easy(text: str, difficulty: str) -> None:
    assert judge(text) == difficulty


@given(st.text(max_size=80))
def test_any_text_has_a_probability_and_punctuation_makes_no_difference(text: str) -> None:
    assert 0.0 <= probability(text) <= 1.0
    # A guess is dropped where its words change by this form, so its route cannot change with the rest.
    assert features(text) == features(normalise(text))


def test_the_fit_makes_the_same_weights_again_and_is_better_than_always_hard() -> None:
    pytest.importorskip("sklearn", reason="needs the extra bench")
    try:
        texts = speech_folder() / "text"
    except RecordingsMissing as error:
        pytest.skip(str(error))
    table, figures = fit(labelled(texts))
    kept = json.loads(DIFFICULTY_FILE.read_text())
    assert kept["threshold"] == table["threshold"]
    assert kept["weights"] == pytest.approx(table["weights"], abs=0.01)
    assert figures.accuracy > figures.always_hard and figures.auc > 0.9
