"""Greetings before the first call: on a real server, the voice has spoken them already."""

from __future__ import annotations

import asyncio

import pytest
from support import speech
from support.callers.carriers import TwilioSim
from support.callers.phone import calling, served

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.agent.server.server import Server
from rejoinder.models.llm.ort.adapter import OrtLlm
from rejoinder.models.tts.phrases import PhraseVoice
from rejoinder.pipeline import History

pytestmark = pytest.mark.server


def kept(program: Server) -> list[str]:
    assert program.models and isinstance(program.models.tts, PhraseVoice)
    return program.models.tts.kept


def len_of(text: str) -> int:
    """Return the length of a text."""
    return len(text)


SILENT = {"apology": "", "cut_apology": ""}


def test_greeting_of_the_agent_is_synthesised_before_the_first_call() -> None:
    async def serve() -> None:
        agent = Agent(greeting="Mario's, good evening.")
        async with served(agent=agent, greeting="Not this one.", **SILENT) as (program, _):
            assert kept(program) == ["Mario's,", "good evening."]
        async with served(greeting="Hello.", apology="Sorry.", cut_apology="I got lost.") as (program, _):
            assert kept(program) == ["Hello.", "Sorry.", "I got lost."]
        agent.tool(len_of)
        async with served(agent=agent, **SILENT) as (program, _):
            assert kept(program)[2:] == ["One moment.", "Let me see."], (
                "an agent with tools lets callers wait"
            )

    asyncio.run(serve())


@pytest.mark.weights
def test_prompt_of_the_first_call_is_read_before_it() -> None:
    speech.need("ort:smollm2-135m-instruct")
    instructions = "You take bookings for Mario's, a small restaurant by the sea with nine tables."

    async def serve() -> None:
        agent = Agent(instructions)
        async with served(agent=agent, llm="ort:smollm2-135m-instruct", **SILENT) as (program, _):
            llm = program.models.llm if program.models else None
            assert isinstance(llm, OrtLlm)
            before = llm.cached_tokens
            await llm.warm(History(instructions).messages())
            assert llm.cached_tokens - before > 15

    asyncio.run(serve())


def test_greeting_that_on_call_changes_is_kept_after_its_first_call() -> None:
    agent = Agent(greeting="Hello.", fillers=())

    @agent.on_call
    def greet(call: Call) -> None:
        call.greeting = "Good morning."

    async def serve() -> None:
        async with served(agent=agent, **SILENT) as (program, url):
            assert kept(program) == ["Hello."]
            async with calling(url, TwilioSim()) as caller:
                await caller.until(lambda: caller.seconds_heard > 0.5)
            assert kept(program) == ["Hello.", "Good morning."]

    asyncio.run(serve())
