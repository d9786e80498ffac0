"""Test your own agent, with its tools and its database: what the caller says, and what it has to do.

    .venv/bin/python -m pytest examples/test_restaurant.py      (make test installs pytest)

Time is virtual, and the language model is a script, so the test loads no models and takes milliseconds.
"""

import sys
from pathlib import Path

import pytest

from rejoinder.simulate import run, simulate

sys.path.insert(0, str(Path(__file__).parent))
from restaurant import agent

BOOK = '@book {"people": 4, "at": "2026-11-27T19:00", "name": "Anna"}'


def test_a_table_is_booked_and_the_call_ends_after_the_goodbye() -> None:
    async def call() -> None:
        async with simulate(agent, BOOK, "It is booked.", "@leave {}") as caller:
            await caller.expects("how can I help")
            await caller.says("A table for four tomorrow at seven, my name is Anna.")
            booked = await caller.expects(tool="book", within=4.0)
            assert booked["people"] == 4
            await caller.expects("booked")
            await caller.says("Thank you, goodbye.")
            await caller.expects("Thank you, goodbye!")
            await caller.expects(over=True)

    run(call())


def test_a_blocked_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("restaurant.BLOCKED", [""])

    async def call() -> None:
        async with simulate(agent):
            pass

    with pytest.raises(Exception, match="this number is blocked"):
        run(call())
