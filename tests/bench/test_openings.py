"""The bench of openings: the faults of joins by rules, and the wait with and without an opening."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from rejoinder.agent.bench.answers.questions import Half, Question
from rejoinder.agent.bench.routing.join import join_faults
from rejoinder.agent.bench.routing.openings import Join, faults_of, joins, percentiles, waits

OPENING = "Sure, let me look at that, "


@pytest.mark.parametrize(
    ("opening", "rest", "faults"),
    [
        (OPENING, "the first train leaves at nine.", []),
        (OPENING, "I think it leaves at nine.", []),
        (OPENING, "NASA was founded in 1958.", []),
        (OPENING, "Boston is far, but Boston has trains.", []),
        ("That is a good question. ", "The first train leaves at nine.", []),
        (OPENING, "", ["nothing follows"]),
        (OPENING, "The first train leaves at nine.", ["new sentence"]),
        (OPENING, "hello, the first train leaves at nine.", ["greets again"]),
        (OPENING, "let me look at that for you.", ["greets again", "repeats"]),
        (OPENING, ", the first train leaves at nine.", ["mark first"]),
        (OPENING, "and as I said it leaves at nine.", ["mentions the break"]),
    ],
)
def test_faults_of_a_join(opening: str, rest: str, faults: list[str]) -> None:
    assert join_faults(opening, rest) == faults


def test_faults_are_counted_and_waits_compared() -> None:
    found = [Join("", "", "", ["repeats"]), Join("", "", ""), Join("", "", "", ["repeats", "mark first"])]
    assert faults_of(found) == Counter({"repeats": 2, "mark first": 1})
    assert percentiles([(1000.0, 400.0), (1200.0, 500.0), (1400.0, 600.0)])[0][0] == 1200.0


def test_a_model_goes_on_behind_each_opening() -> None:
    questions = [
        Question("everyday", Half.TUNE, (words,)) for words in ("Why is the sky blue?", "Who are you?")
    ]
    llm = "scripted:llm|it is so."
    phrases = ("Okay, let me see,", "Well,")
    found = asyncio.run(joins(llm, "", phrases, questions, str.lower, lambda: None))
    assert [(one.opening, one.rest, one.faults) for one in found] == [
        ("Okay, let me see, ", "it is so.", []),
        ("Well, ", "it is so.", []),
    ]


@pytest.mark.server
def test_an_opening_is_heard_before_a_late_answer() -> None:
    """The distance is most of a second, so a busy machine does not turn the order round in both pairs."""
    found = asyncio.run(waits(2, 2.5, 0.3, ("Okay, let me see,",), lambda: None))
    assert min(opened for _, opened in found) < min(without for without, _ in found)
    assert all(without >= 2500.0 for without, _ in found)
