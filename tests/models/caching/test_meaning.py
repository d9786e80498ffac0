"""Which questions have one meaning, and which stand alone. The whole sets are those of the bench."""

from __future__ import annotations

import pytest

from rejoinder.agent.bench.questions.sets import Pair, contrasts, paraphrases, standing
from rejoinder.models.caching.cache import is_english
from rejoinder.models.caching.meaning import meaning, plain_words
from rejoinder.models.caching.standing import depends_on_time, stands_alone


@pytest.mark.parametrize("pair", contrasts(), ids=lambda pair: f"{pair.kind}: {pair.one} / {pair.other}")
def test_questions_with_other_answers_have_another_meaning(pair: Pair) -> None:
    assert meaning(pair.one) != meaning(pair.other)


def test_most_paraphrases_have_one_meaning() -> None:
    same = [pair for pair in paraphrases() if meaning(pair.one) == meaning(pair.other)]
    assert len(same) >= 0.55 * len(paraphrases())


def test_no_two_unrelated_questions_have_one_meaning() -> None:
    """Paraphrases link questions; across these groups, no meaning may be equal."""
    group: dict[str, str] = {}

    def root(text: str) -> str:
        while group.setdefault(text, text) != text:
            text = group[text]
        return text

    for pair in paraphrases():
        group[root(pair.one)] = root(pair.other)
    texts = {text for pair in [*paraphrases(), *contrasts()] for text in (pair.one, pair.other)}
    by_meaning: dict[object, set[str]] = {}
    for text in texts:
        by_meaning.setdefault(meaning(text), set()).add(root(text))
    assert [roots for roots in by_meaning.values() if len(roots) > 1] == []


def test_what_points_back_does_not_stand_alone() -> None:
    alone = [(text, stands) for text, stands in standing() if stands_alone(text)]
    assert len([text for text, stands in alone if not stands]) <= 1
    assert len(alone) >= 0.9 * sum(stands for _, stands in standing())


@pytest.mark.parametrize(
    ("text", "depends"),
    [
        ("What time is it?", True),
        ("What's the time?", True),
        ("Is the office open today?", True),
        ("What is the weather in Rome?", True),
        ("What time do you open on Saturday?", False),
        ("How long does a day last on Mars?", False),
    ],
)
def test_answers_that_change_with_time(text: str, depends: bool) -> None:
    assert depends_on_time(text) is depends


@pytest.mark.parametrize(
    ("recogniser", "english"),
    [
        ("whisper:tiny.en", True),
        ("whisper:base", True),
        ("whisper:base@en", True),
        ("whisper:base@de", False),
        ("mine:model.en", False),
        ("", False),
    ],
)
def test_the_rules_are_for_english_only(recogniser: str, english: bool) -> None:
    assert is_english(recogniser) is english


def test_signs_inside_words_count() -> None:
    for one, other in (("What is C++?", "what is c"), ("3.5", "35"), ("3.5", "3 5"), ("10:30", "1030")):
        assert plain_words(one) != plain_words(other)
    assert plain_words("“Well, what is 1,000 times 2.5?”") == "well what is 1000 times 2.5"
