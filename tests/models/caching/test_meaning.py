"""Which questions have one meaning, and which stand alone. The whole sets are those of the bench."""

from __future__ import annotations

import pytest

from rejoinder.agent.bench.caching.judging import same, strangers
from rejoinder.agent.bench.caching.sets import Pair, contrasts, paraphrases
from rejoinder.models.caching.cache import is_english
from rejoinder.models.caching.meaning import meaning, plain_words
from rejoinder.models.caching.passing import depends_on_time


@pytest.mark.parametrize("pair", contrasts(), ids=lambda pair: f"{pair.kind}: {pair.one} / {pair.other}")
def test_questions_with_other_answers_have_another_meaning(pair: Pair) -> None:
    assert not same(pair)


def test_most_paraphrases_have_one_meaning() -> None:
    assert sum(map(same, paraphrases())) >= 0.5 * len(paraphrases())


def test_no_two_unrelated_questions_have_one_meaning() -> None:
    """Paraphrases link questions; across these groups, no meaning may be equal."""
    assert strangers()[0] == 0


@pytest.mark.parametrize("text", ["What does OK mean?", "Please.", "", "What is it?"])
def test_names_and_words_that_say_little_have_no_wide_meaning(text: str) -> None:
    found = meaning(text)
    assert found is None or found.names or found.words


@pytest.mark.parametrize(
    ("text", "depends"),
    [
        ("What time is it?", True),
        ("What's the time?", True),
        ("Can you tell me what time it is?", True),
        ("Do you have the time?", True),
        ("What year is it?", True),
        ("When does the next train leave?", True),
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
