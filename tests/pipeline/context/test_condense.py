"""What is kept of a conversation without a model: names, numbers, decisions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.pipeline.context.condense import condense, facts
from rejoinder.pipeline.context.tokens import estimated

SMALL_TALK = [
    "Caller: is it raining at your place too",
    "Agent: I cannot look outside, but I hope it stays dry.",
    "Caller: yes well that would be nice",
    "Agent: Is there anything else that I can do for you?",
]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Caller: my name is Adaeze Okafor", {"adaeze", "okafor"}),
        ("Agent: The order is 48213. It costs 19.50.", {"48213", "19.50"}),
        ("Caller: on tuesday at noon for eight", {"tuesday", "noon", "eight"}),
        ("Caller: I think I'm fine", set()),
        ("Agent: Hello there. How are you?", set()),
    ],
)
def test_facts_are_numbers_days_and_names(line: str, found: set[str]) -> None:
    assert facts(line) == found


def test_what_was_settled_is_kept_among_small_talk() -> None:
    told = [
        "Caller: um my name is Adaeze Okafor",
        "Caller: the order number is 48213",
        "Caller: we will take the blue one instead of the green one on Tuesday",
    ]
    text = "\n".join(line for one in told for line in [one, *SMALL_TALK * 5])
    kept = condense(text, 80).splitlines()
    assert kept[0] == "Caller: my name is Adaeze Okafor"
    assert "48213" in kept[1] and "blue" in kept[2] and estimated("\n".join(kept)) <= 80


def test_a_fact_is_kept_once_and_an_earlier_summary_weighs_more() -> None:
    lines = [f"Caller: call me on {number}00{number}" for number in range(1, 9)]
    text = "\n".join(["Earlier: Caller: the code is 7731", *lines, *lines])
    kept = condense(text, 60).splitlines()
    assert kept[0] == "Caller: the code is 7731"
    assert len(kept) == len(set(kept)) > 2


def test_a_long_turn_without_full_stops_is_kept_in_part() -> None:
    turn = (
        "Caller: well "
        + "you see it is like this " * 10
        + "and the code is 7731 and "
        + "so on it goes " * 10
    )
    kept = condense(turn, 30)
    assert "and the code is 7731" in kept and estimated(kept) <= 30


@given(st.lists(st.text("aB3. ?", max_size=40), max_size=30), st.integers(0, 100))
def test_the_result_fits_and_has_lines_of_the_text_only(lines: list[str], tokens: int) -> None:
    kept = condense("\n".join(f"Caller: {line}" for line in lines), tokens)
    assert sum(estimated(line) for line in kept.splitlines()) <= tokens
    assert all(
        any(line.removeprefix("Caller: ") in one for one in map(_single, lines)) for line in kept.splitlines()
    )


def _single(line: str) -> str:
    return " ".join(line.split())
