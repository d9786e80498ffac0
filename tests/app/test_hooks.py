"""The integrator's hooks: before a call, after each turn, and after the call, in virtual time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call, CallInfo, NotConnected, RefusedCall
from rejoinder.agent.app.host import BROKEN, AgentHost
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.pipeline import POINTS, Options, ReplyDone


def asked(agent: Agent[Any, Any], until: float = 4.0) -> Talk:
    """Hold a call in which the caller asks about the weather after the greeting."""
    conversation = Talk("what is the weather", agent=agent)
    conversation.says(0.6, at=1.5)
    return conversation.run(until)


def heard(conversation: Talk) -> list[str]:
    return [done.heard for done in conversation.of(ReplyDone) if done.heard]


def test_agent_speaks_its_greeting_and_follows_its_instructions() -> None:
    conversation = asked(Agent("Be brief.", greeting="Hello."))
    assert heard(conversation) == ["Hello.", "Sunny."]
    assert conversation.llm.prompts[-1][0] == {"role": "system", "content": "Be brief."}


def test_hook_before_the_call_changes_it() -> None:
    agent: Agent[None, None] = Agent("Be brief.", greeting="Hello.")

    @agent.on_call
    async def prepare(call: Call) -> None:
        call.instructions = f"The caller is on {call.info.wire}."
        call.greeting = "Good morning."
        call.take_turns("patient")
        call.patience = 2.5

    conversation = asked(agent)
    assert heard(conversation) == ["Good morning.", "Sunny."]
    assert conversation.llm.prompts[-1][0]["content"] == "The caller is on simulation."
    endpointing = conversation.session.options.endpointing
    assert endpointing.patience == 2.5
    assert endpointing.unsure_wait_ms == POINTS["patient"].unsure_wait_ms


def test_state_belongs_to_one_call_and_resources_to_all() -> None:
    @dataclass
    class Guest:
        turns: int = 0

    opened: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[list[str]]:
        opened.append("open")
        yield opened
        opened.append("closed")

    agent = Agent[Guest, list[str]](state=Guest, lifespan=lifespan)
    guests: list[Guest] = []

    @agent.on_turn
    def count(call: Call[Guest, list[str]], words: str) -> None:
        call.state.turns += 1
        call.resources.append(words)
        guests.append(call.state)

    asked(agent)
    asked(agent)
    assert opened == ["open", "what is the weather", "closed"] * 2
    assert [guest.turns for guest in guests] == [1, 1] and guests[0] is not guests[1]


def test_hook_after_the_call_gets_what_was_heard() -> None:
    agent: Agent[None, None] = Agent(greeting="Hello.")
    ends: list[tuple[list[str], float, str]] = []

    @agent.on_end
    async def note(call: Call) -> None:
        ends.append(([one["content"] for one in call.transcript], call.seconds, call.ended))
        with pytest.raises(NotConnected, match="the call is over"):
            call.say("Too late.")

    asked(agent)
    assert ends == [(["Hello.", "what is the weather", "Sunny."], 4.0, "the caller has left")]


def test_agent_hangs_up_after_its_last_word() -> None:
    agent: Agent[None, None] = Agent()
    ends: list[tuple[str, float]] = []

    @agent.on_turn
    def leave(call: Call, words: str) -> None:
        call.hang_up("all is said")

    @agent.on_end
    def note(call: Call) -> None:
        ends.append((call.ended, call.seconds))

    conversation = asked(agent, until=10.0)
    assert heard(conversation) == ["Sunny."]
    ((reason, seconds),) = ends
    last = conversation.when(ReplyDone)[-1]
    assert reason == "all is said" and last < seconds < 5.0


@pytest.mark.parametrize(
    ("error", "reason"), [(None, "we are closed"), (ZeroDivisionError(), BROKEN), (TimeoutError(), BROKEN)]
)
def test_call_is_refused_with_a_reason(
    error: Exception | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent: Agent[None, None] = Agent()

    @agent.on_call
    async def check(call: Call) -> None:
        if error:
            raise error
        call.refuse("we are closed")

    with pytest.raises(RefusedCall, match=reason):
        asyncio.run(AgentHost(agent).answer(CallInfo("call-1"), Options()))
    assert ("call call-1: on_call failed" in caplog.text) == (error is not None)
    assert (f"raise error\n{type(error).__name__}" in caplog.text) == (error is not None)


def test_hook_that_fails_hurts_no_call() -> None:
    agent: Agent[None, None] = Agent()

    @agent.on_turn
    def broken(call: Call, words: str) -> None:
        raise ZeroDivisionError

    conversation = asked(agent)
    assert heard(conversation) == ["Sunny."]
    (failure,) = conversation.failures
    assert isinstance(failure.error, ZeroDivisionError)
    assert re.match(r"on_turn failed: \S*test_hooks\.py, line \d+: ZeroDivisionError", str(failure))


def test_refuse_is_for_calls_that_are_not_answered() -> None:
    agent: Agent[None, None] = Agent()

    @agent.on_turn
    def late(call: Call, words: str) -> None:
        with pytest.raises(RuntimeError, match="use hang_up"):
            call.refuse("too late")
        words_seen.append(words)

    words_seen: list[str] = []
    asked(agent)
    assert words_seen == ["what is the weather"]


def test_call_with_models_that_the_agent_does_not_have_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    agent: Agent[None, None] = Agent()

    @agent.on_call
    def choose(call: Call) -> None:
        call.models = "german"

    with pytest.raises(RefusedCall, match=BROKEN):
        asyncio.run(AgentHost(agent).answer(CallInfo(), Options()))
    assert "on_call chose models 'german'; the sets are: none" in caplog.text
