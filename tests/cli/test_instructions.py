"""The date and the time in system prompts."""

from __future__ import annotations

from datetime import datetime

import pytest

from rejoinder.agent.config import load
from rejoinder.agent.instructions import dated


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


def test_other_braces_stay() -> None:
    assert dated('Answer as {"name": {x}}', datetime(2026, 3, 4)) == 'Answer as {"name": {x}}'


def test_a_session_knows_when_it_begins() -> None:
    settings, _ = load({"instructions": "It is {time}."})
    assert settings.options(datetime(2026, 3, 4, 9, 5)).instructions == "It is 9:05 AM."
    assert settings.options().instructions.endswith((" AM.", " PM."))
