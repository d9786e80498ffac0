"""Telephone calls over real sockets: every carrier's wire, real recordings, and the models as they ship."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support import speech
from support.callers.carriers import SIMS, TwilioSim
from support.callers.phone import REAL, calling, plain, question, served, transcribed

from rejoinder.agent.server.server import Server

STORY = " ".join(
    [
        "Every morning the old fisherman took his small boat out to the island.",
        "He stayed there until the evening, and he sang all day long.",
        "The gulls knew his songs. The children waited for him on the beach.",
    ]
    * 4
)
"""Goes on for long, however late a busy machine hears the caller."""


@pytest.fixture(scope="module")
def office() -> Iterator[tuple[asyncio.Runner, Server, str]]:
    """Serve all calls of this file: yields the loop that serves, the program and the address of its phone."""
    speech.need(*REAL.values())
    with asyncio.Runner() as runner:
        serving = served(**REAL, llm=f"scripted:llm|{STORY}")
        yield runner, *runner.run(serving.__aenter__())
        runner.run(serving.__aexit__(None, None, None))


def last_answer(prompts: list[list[Any]]) -> str:
    """Return what the last prompt has of the agent's last reply."""
    said = [message["content"] for message in prompts[-1] if message["role"] == "assistant"]
    return str(said[-1]) if said else ""


@pytest.mark.weights
@pytest.mark.parametrize("carrier", SIMS, ids=lambda sim: sim.name)
def test_caller_asks_and_interrupts(
    office: tuple[asyncio.Runner, Server, str], carrier: type[TwilioSim]
) -> None:
    runner, program, url = office
    prompts = program.models.llm.prompts  # type: ignore[union-attr]
    prompts.clear()

    async def hold() -> None:
        sim = carrier()
        said = question(sim.rate)
        # What is on its way when the agent knows that it is interrupted has to be cleared.
        async with calling(url, sim, lag=1.0) as caller:
            caller.say(said)
            await caller.until(lambda: caller.seconds_heard > 3.0)
            assert "weather" in prompts[-1][-1]["content"].lower()
            assert caller.returned, "marks are asked for"
            asked = len(prompts)  # on a busy machine the clear comes with the end of the turn
            caller.say(said)
            await caller.until(lambda: "clear" in caller.asked)
            heard = bytes(caller.ear)
            await caller.until(lambda: len(prompts) > asked and last_answer(prompts).endswith("—"))
            told = last_answer(prompts)
            assert told.endswith("—"), "the history knows that it was cut"
            # The recogniser makes up the end of a word that is cut; test_marks.py counts there.
            really = plain(await transcribed(program, heard, sim.rate)).split()
            assert len(told.split()) > 8 and len(really) > 8
            assert speech.word_error_rate([" ".join(told.split()[:8])], [" ".join(really[:8])]) <= 0.25
        await caller.until(lambda: not program.calls)

    runner.run(hold())
