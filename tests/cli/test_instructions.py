"""The date and the time in system prompts."""

from __future__ import annotations

from datetime import datetime

import pytest

from rejoinder.agent.config import load
from rejoinder.agent.instructions import INSTRUCTIONS, dated


@pytest.mark.parametrize(
    "now, said",
    [
        (datetime(2026, 3, 4, 15, 20), "Wednesday, March 4, 2026 at 3:20 PM"),
        (datetime(2026, 12, 31, 0, 5), "Thursday, December 31, 2026 at 12:05 AM"),
        (datetime(2027, 1, 1, 12, 0), "Friday, January 1, 2027 at 12:00 PM"),
    ],
)
def test_date_and_time_are_written_as_they_are_read_aloud(now: datetime, said: str) -> None:
    assert dated("{date} at {time}", now) == said


def test_tomorrow_is_a_weekday() -> None:
    assert dated("Tomorrow is {tomorrow}.", datetime(2026, 12, 31, 23, 59)) == "Tomorrow is Friday."


def test_the_default_instructions_are_complete_and_end_with_what_changes() -> None:
    first, later = (dated(INSTRUCTIONS, datetime(2026, 3, 4, hour)) for hour in (9, 10))
    assert "{" not in first
    shared = next(place for place, (a, b) in enumerate(zip(first, later, strict=False)) if a != b)
    assert shared > 0.9 * len(first)


@pytest.mark.parametrize(
    "given, has_examples",
    [
        ({"llm": "small"}, True),
        ({"llm": "medium"}, True),
        ({"llm": "small", "instructions": "Antworte kurz."}, False),
        ({"llm": "openai:http://127.0.0.1:9/v1#m"}, False),
    ],
)
def test_examples_go_with_the_default_instructions_of_an_embedded_model(
    given: dict[str, str], has_examples: bool
) -> None:
    assert bool(load(given)[0].options().examples) is has_examples


def test_other_braces_stay() -> None:
    assert dated('Answer as {"name": {x}}', datetime(2026, 3, 4)) == 'Answer as {"name": {x}}'


def test_a_session_knows_when_it_begins() -> None:
    settings, _ = load({"instructions": "It is {time}."})
    assert settings.options(datetime(2026, 3, 4, 9, 5)).instructions == "It is 9:05 AM."
    assert settings.options().instructions.endswith((" AM.", " PM."))
