"""Greetings and fillers before the first call: on a real server, for each of its voices."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.callers.carriers import TwilioSim
from support.callers.phone import calling, served

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.models.scripted import ScriptedTts
from rejoinder.models.tts.phrases import PhraseVoice

pytestmark = pytest.mark.server
SILENT = {"apology": "", "cut_apology": "", "drain_goodbye": ""}


def kept(models: Any) -> list[str]:
    assert isinstance(models.tts, PhraseVoice)
    return list(models.tts._kept)


def test_every_voice_has_greeting_and_fillers_before_the_first_call() -> None:
    agent: Agent[None, None] = Agent(
        greeting="Mario's, good evening.",
        fillers=("One moment.",),
        models={"other": {"tts": "scripted:tts"}, "same": {"stt": "scripted:stt|hello"}},
    )

    async def serve() -> None:
        async with served(agent=agent, greeting="Not this one.", **SILENT) as (program, _):
            host = program.hosting.current
            assert host is not None and program.models is not None
            assert kept(program.models) == ["Mario's,", "good evening.", "One moment."]
            assert kept(host.variants["other"]) == kept(program.models)
            assert host.variants["other"].tts is not program.models.tts
            assert host.variants["same"].tts is program.models.tts

    asyncio.run(serve())


def test_apologies_are_kept_once_the_server_is_ready() -> None:
    async def serve() -> None:
        async with served(apology="Sorry, not now. Ask again.", cut_apology="Sorry, I got lost.") as (
            program,
            _,
        ):
            async with asyncio.timeout(20.0):
                while len(kept(program.models)) < 4:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert set(kept(program.models)) == {"Sorry,", "not now.", "Ask again.", "I got lost."}

    asyncio.run(serve())


def test_greeting_of_the_settings_is_there_without_an_agent() -> None:
    async def serve() -> None:
        async with served(greeting="Hello.", **SILENT) as (program, _):
            assert kept(program.models) == ["Hello."]
        async with served(**SILENT) as (program, _):
            assert program.models is not None and isinstance(program.models.tts, ScriptedTts)

    asyncio.run(serve())


def test_greeting_that_on_call_changes_is_kept_after_its_first_call() -> None:
    agent: Agent[None, None] = Agent(greeting="Hello.", fillers=())

    @agent.on_call
    def greet(call: Call) -> None:
        call.greeting = "Good morning."

    async def serve() -> None:
        async with served(agent=agent, **SILENT) as (program, url):
            assert kept(program.models) == ["Hello."]
            async with calling(url, TwilioSim()) as caller:
                await caller.until(lambda: caller.seconds_heard > 0.5)
            assert kept(program.models) == ["Hello.", "Good morning."]

    asyncio.run(serve())
