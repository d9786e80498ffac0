"""Which model answers a question: the rules as tables, and what is said of rules that cannot work."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rejoinder.models.llm.routing.budget import DaySpending
from rejoinder.models.llm.routing.choosing import (
    NO_RULE,
    Choice,
    Facts,
    choose,
    covers,
    matches,
    mistake,
    word_count,
)
from rejoinder.models.llm.routing.settings import RouteSettings
from rejoinder.models.specs import LANGUAGE_MODELS

KEY = "0123456789abcdef" * 4


def rule(model: str = "small", **conditions: Any) -> RouteSettings:
    return RouteSettings.model_validate({"model": model, **conditions})


@pytest.mark.parametrize(
    ("conditions", "asked", "expected"),
    [
        ({"max_words": 12}, {"words": 12}, True),
        ({"max_words": 12}, {"words": 13}, False),
        ({"min_words": 3}, {"words": 3}, True),
        ({"min_words": 3}, {"words": 2}, False),
        ({"tools": False}, {}, True),
        ({"tools": False}, {"tools": True}, False),
        ({"tools": True}, {"tools": True}, True),
        ({"languages": ["en", "de"]}, {"language": "de"}, True),
        ({"languages": ["en"]}, {"language": "de"}, False),
        ({"languages": ["en"]}, {"language": ""}, False),
        ({"hours": "09:00-17:30"}, {"minute": 9 * 60}, True),
        ({"hours": "09:00-17:30"}, {"minute": 17 * 60 + 30}, False),
        ({"hours": "22:00-06:00"}, {"minute": 23 * 60}, True),
        ({"hours": "22:00-06:00"}, {"minute": 0}, True),
        ({"hours": "22:00-06:00"}, {"minute": 6 * 60}, False),
        ({"hours": "22:00-06:00"}, {"minute": 12 * 60}, False),
        ({"hours": "22:00-00:00"}, {"minute": 24 * 60 - 1}, True),
        ({"hours": "22:00-00:00"}, {"minute": 0}, False),
        ({"load_above": 0.8}, {"load": 0.81}, True),
        ({"load_above": 0.8}, {"load": 0.8}, False),
        ({"cost_left_below": 2.0}, {"cost_left": 1.9}, True),
        ({"cost_left_below": 2.0}, {"cost_left": 2.0}, False),
        ({"cost_left_below": 2.0}, {}, False),
        ({"keys": [KEY[:8]]}, {"key": KEY}, True),
        ({"keys": ["f" * 8]}, {"key": KEY}, False),
        ({"keys": [KEY[:8]]}, {"key": ""}, False),
        ({"difficulty": "easy"}, {"difficulty": "easy"}, True),
        ({"difficulty": "easy"}, {}, False),
        ({"max_words": 12, "difficulty": "easy"}, {"words": 3, "difficulty": "hard"}, False),
    ],
)
def test_conditions(conditions: dict[str, Any], asked: dict[str, Any], expected: bool) -> None:
    assert matches(rule(**conditions), Facts(**asked)) is expected


def test_the_first_rule_that_matches_counts_and_the_reason_names_it() -> None:
    rules = list(
        enumerate([rule("tiny", max_words=2), rule(max_words=12, tools=False), rule("big", keys=[KEY])], 1)
    )
    assert choose(Facts(words=1), rules) == Choice("tiny", "rule 1: max_words 2")
    assert choose(Facts(words=9), rules) == Choice("small", "rule 2: max_words 12, tools false")
    assert choose(Facts(words=99), rules) == Choice("", NO_RULE)
    assert choose(Facts(words=99, key=KEY), rules).reason == f"rule 3: keys {KEY[:8]}", "not all of it"


@pytest.mark.parametrize(
    ("conditions", "sentence"),
    [
        ({}, "it has no condition"),
        ({"max_words": 3, "min_words": 4}, "no turn has at least 4 and at most 3 words"),
        ({"hours": "09:00-09:00"}, "which is never"),
        ({"hours": "9-17"}, "pattern"),
        ({"hours": "24:00-06:00"}, "pattern"),
        ({"keys": ["abc"]}, "pattern"),
        ({"languages": ["English"]}, "pattern"),
        ({"load_above": 1.5}, "less than or equal to 1"),
        ({"difficulty": "so-so"}, "'easy' or 'hard'"),
        ({"max_word": 3}, "Extra inputs"),
    ],
)
def test_rules_that_are_refused(conditions: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        rule(**conditions)


@pytest.mark.parametrize(
    ("rules", "budget", "sentence"),
    [
        ([rule(max_words=3), rule("big", max_words=9)], 0.0, ""),
        ([rule("tiny", max_words=3)], 0.0, "rule 1: 'tiny' is none of the models in llm: big, small"),
        ([rule(cost_left_below=1.0)], 0.0, "rule 1: cost_left_below needs a day_budget"),
        ([rule(cost_left_below=1.0)], 2.0, ""),
        ([rule(cost_left_below=3.0)], 2.0, "rule 1: cost_left_below is 3, more than the day_budget"),
        (
            [rule(max_words=9), rule("big", max_words=3, tools=False)],
            0.0,
            "rule 2 is never reached: rule 1 matches all of its questions first",
        ),
        (
            [rule(hours="22:00-06:00"), rule(max_words=2), rule("big", hours="23:00-01:00")],
            0.0,
            "rule 3 is never reached: rule 1 matches all of its questions first",
        ),
        ([rule(hours="23:00-01:00"), rule("big", hours="22:00-06:00")], 0.0, ""),
    ],
)
def test_rules_are_checked_together(rules: list[RouteSettings], budget: float, sentence: str) -> None:
    assert mistake(rules, ["big", "small"], budget) == sentence


def test_a_refused_rule_names_the_models_as_the_user_does() -> None:
    rules = [rule(LANGUAGE_MODELS["small"], max_words=3)]
    sentence = "rule 1: 'small' is none of the models in llm: medium, openai:http://a/v1#b"
    assert mistake(rules, [LANGUAGE_MODELS["medium"], "openai:http://a/v1#b"], 0.0) == sentence


HOURS = st.sampled_from(["", "22:00-06:00", "23:00-05:00", "06:00-22:00", "09:00-17:00", "00:00-23:59"])
RULES = st.builds(
    lambda **given: RouteSettings.model_validate({"model": "small", **given}),
    min_words=st.none() | st.integers(1, 4),
    max_words=st.none() | st.integers(4, 9),
    tools=st.none() | st.booleans(),
    languages=st.sampled_from([[], ["en"], ["en", "de"]]),
    hours=HOURS,
    load_above=st.none() | st.sampled_from([0.2, 0.8]),
    cost_left_below=st.none() | st.sampled_from([1.0, 5.0]),
    keys=st.sampled_from([[], [KEY[:8]], [KEY[:16]], [KEY[:8], "f" * 8]]),
    # So that each rule has a condition.
    difficulty=st.sampled_from(["easy", "hard"]),
)
QUESTIONS = st.builds(
    Facts,
    words=st.integers(0, 12),
    tools=st.booleans(),
    language=st.sampled_from(["", "en", "de", "fr"]),
    minute=st.integers(0, 24 * 60 - 1),
    load=st.sampled_from([0.0, 0.2, 0.5, 0.9]),
    cost_left=st.sampled_from([-1.0, 0.5, 3.0, 9.0]),
    key=st.sampled_from(["", KEY, "f" * 64]),
    difficulty=st.sampled_from(["easy", "hard"]),
)


@given(RULES, RULES, QUESTIONS)
def test_a_rule_that_covers_another_matches_whatever_that_one_matches(
    first: RouteSettings, second: RouteSettings, asked: Facts
) -> None:
    assert covers(first, first)
    if covers(first, second) and matches(second, asked):
        assert matches(first, asked)


@given(st.lists(RULES, max_size=4), QUESTIONS)
def test_the_choice_is_the_first_match_or_the_default(rules: list[RouteSettings], asked: Facts) -> None:
    numbered = list(enumerate(rules, 1))
    found = [number for number, one in numbered if matches(one, asked)]
    reason = choose(asked, numbered).reason
    assert reason.startswith(f"rule {found[0]}: ") if found else reason == NO_RULE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        ("How are you?", 3),
        ("It's 3.5 o'clock", 4),
        ("好。", 1),
        ("请问明天去波士顿的火车几点出发?", 8),
        ("明日の天気を教えてください", 7),
        ("พรุ่งนี้อากาศเป็นอย่างไร", 6),
        ("用 Python 写", 2),
        ("오늘 날씨 어때", 3),
    ],
)
def test_languages_without_blanks_have_words_too(text: str, words: int) -> None:
    assert word_count(text) == words


def test_a_budget_begins_again_at_midnight() -> None:
    day = date(2026, 11, 23)
    spending = DaySpending(lambda: day)
    spending.add(4.0)
    spending.add(7.0)
    assert spending.cost == 11.0
    day += timedelta(1)
    assert spending.cost == 0.0
    spending.add(1.5)
    assert spending.cost == 1.5
