"""Tools in a conversation, in virtual time: nothing is lost or doubled, or said over the caller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.weather import Clerk

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.pipeline import ReplyAudio, ReplyDone


def talk(seconds: float, *lines: str, **options: Any) -> tuple[Talk, list[str]]:
    """Return a conversation with an agent whose tool takes ``seconds``, and a log of the tool's runs."""
    agent: Agent[None, None] = Agent()
    runs: list[str] = []

    @agent.tool(**options)
    async def weather(call: Call, city: str) -> str:
        """Tell the weather."""
        runs.append("begun")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            runs.append("cancelled")
            raise
        runs.append("done")
        return "sunny"

    llm = Clerk()
    return Talk(*(lines or ["what is the weather"]), llm=llm, agent=agent), runs


def words(talk: Talk) -> list[str]:
    """Return what the agent said in full, in order."""
    return [done.heard for done in talk.of(ReplyDone) if done.heard and done.status == "completed"]


def test_result_of_a_tool_is_answered() -> None:
    conversation, runs = talk(0.2)
    conversation.says(0.6, at=0.5)
    conversation.run(5.0)
    assert runs == ["begun", "done"] and words(conversation) == ["It is sunny."]


def test_slow_tool_lets_the_agent_talk_on() -> None:
    conversation, runs = talk(6.0)
    conversation.says(0.6, at=0.5)
    conversation.run(12.0)
    assert runs == ["begun", "done"]
    assert words(conversation) == ["I am still looking.", "It is sunny."]


def test_background_tool_is_announced_and_told() -> None:
    conversation, runs = talk(2.0, background=True)
    conversation.says(0.6, at=0.5)
    conversation.run(8.0)
    assert runs == ["begun", "done"]
    assert words(conversation) == ["I am still looking.", "It is sunny."]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("start_ms", range(1_000, 5_000, 50))
def test_interruption_loses_and_doubles_nothing(start_ms: int, durable: bool) -> None:
    """The caller speaks again at every 50 ms of a call whose tool takes 2 s."""
    conversation, runs = talk(2.0, "what is the weather", "and please hurry", durable=durable)
    conversation.says(0.6, at=0.5)
    conversation.says(0.6, at=start_ms / 1000)
    conversation.run(14.0, rest=2.0)
    assert runs.count("begun") == runs.count("done") + runs.count("cancelled"), "every run has ended"
    assert runs.count("done") == 1, "it ran to its end once"
    assert not durable or "cancelled" not in runs
    told = [one for one in words(conversation) if one == "It is sunny."]
    assert told, f"the result was lost: {conversation.timeline()}"
    spoken = [at for at, event in conversation.log if isinstance(event, ReplyAudio)]
    begin, end = start_ms / 1000 + 0.3, start_ms / 1000 + 0.6
    assert not [at for at in spoken if begin < at < end], "the agent spoke over the caller"
