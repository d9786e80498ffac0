"""Tools in a conversation: in parallel, one after the other, behind words, with mistakes; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.agent_call import FAILED, LATE_RESULT
from rejoinder.agent.app.runs import MOST_MENDS, MOST_ROUNDS
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Message, ReplyDone, ToolCall, Tools


def desk() -> tuple[Agent[None, None], list[str]]:
    """Return an agent with a quick, a slow and a broken tool, and a log of what ran."""
    agent: Agent[None, None] = Agent()
    ran: list[str] = []

    @agent.tool
    async def quick() -> str:
        """Answer within 0.2 s."""
        await asyncio.sleep(0.2)
        ran.append("quick")
        return "q"

    @agent.tool
    async def slow() -> str:
        """Answer within 6 s."""
        await asyncio.sleep(6.0)
        ran.append("slow")
        return "s"

    @agent.tool
    async def seats(people: int) -> int:
        """Count the seats."""
        ran.append(f"seats for {people}")
        return people + 1

    @agent.tool
    async def broken() -> None:
        """Fail."""
        raise RuntimeError("the password is 1234")

    return agent, ran


def asked(*replies: str, until: float = 6.0, says: tuple[float, ...] = (0.5,)) -> tuple[Talk, list[str]]:
    """Hold a call in which the model gives these replies in turn; return it and what ran."""
    agent, ran = desk()
    llm = ScriptedLlm(list(replies), first=0.08, each=0.0)
    conversation = Talk(*["can you help me"] * len(says), llm=llm, agent=agent)
    for at in says:
        conversation.says(0.6, at=at)
    return conversation.run(until), ran


def heard(conversation: Talk) -> list[str]:
    return [done.heard for done in conversation.of(ReplyDone) if done.heard]


def results(conversation: Talk) -> list[Any]:
    """Return the results of tools in the last prompt."""
    return [one["content"] for one in conversation.llm.prompts[-1] if one["role"] == "tool"]


def test_parallel_calls_are_told_together() -> None:
    conversation, ran = asked('@quick {} @seats {"people": 4}', "Both are done.")
    assert sorted(ran) == ["quick", "seats for 4"]
    assert results(conversation) == ["q", "5"], "in the order of the calls"
    assert heard(conversation) == ["Both are done."]


def test_slow_call_does_not_hold_up_a_quick_one_for_ever() -> None:
    conversation, ran = asked("@quick {} @slow {}", "One is done.", "Now the other, too.", until=14.0)
    assert ran == ["quick", "slow"]
    assert heard(conversation) == ["One is done.", "Now the other, too."]
    assert conversation.llm.prompts[-1][-1] == {"role": "user", "content": LATE_RESULT}, "it sees what is new"
    assert LATE_RESULT not in str(conversation.call.transcript)


def test_calls_in_sequence() -> None:
    conversation, ran = asked("@quick {}", '@seats {"people": 2}', "All is done.")
    assert ran == ["quick", "seats for 2"]
    assert heard(conversation) == ["All is done."]


def test_words_before_a_call_are_said_first() -> None:
    conversation, ran = asked("Let me look. @quick {}", "It is there.")
    assert ran == ["quick"]
    assert heard(conversation) == ["Let me look.", "It is there."]


def test_call_behind_words_that_the_caller_cuts_off_is_not_made() -> None:
    long = "Let me look that up for you in the big book of all the tables that we have here."
    conversation, ran = asked(f"{long} @quick {{}}", "Fine.", says=(0.5, 3.0), until=10.0)
    cut, *others = heard(conversation)
    assert cut and cut != long and others == ["Fine."]
    assert ran == []


def test_caller_who_goes_on_speaking_gets_one_run() -> None:
    """The end of the turn was guessed, and the guess was dropped with its call."""
    conversation, ran = asked("@quick {}", "Done.", says=(0.5, 1.3))
    assert len(conversation.llm.prompts) > 2, "there was a guess"
    assert (ran, heard(conversation)) == (["quick"], ["Done."])


def test_wrong_arguments_go_back_to_the_model() -> None:
    conversation, ran = asked('@seats {"people": "many"}', '@seats {"people": 4}', "There are five.")
    assert ran == ["seats for 4"]
    wrong, right = results(conversation)
    assert (
        wrong.startswith("The arguments do not fit. people: Input should be a valid integer") and right == "5"
    )
    assert heard(conversation) == ["There are five."]


def test_unknown_tool_goes_back_to_the_model() -> None:
    conversation, ran = asked("@pay {}", "I cannot do that.")
    assert results(conversation) == ["There is no tool pay. The tools are: quick, slow, seats, broken."]
    assert (ran, heard(conversation)) == ([], ["I cannot do that."])


def test_failure_is_for_the_operator_and_not_in_the_prompt() -> None:
    conversation, _ = asked("@broken {}", "Sorry, that did not work.")
    assert results(conversation) == [FAILED]
    assert heard(conversation) == ["Sorry, that did not work."]
    (failure,) = conversation.failures
    assert failure.what == "the tool broken" and "the password is 1234" in str(failure)


def test_arguments_that_are_not_json_go_back_to_the_model() -> None:
    """The next prompt has them in an object: chat servers refuse a prompt with a call that is not JSON."""
    conversation, ran = asked('@seats {"people":4', '@seats {"people":4}', "There are five.")
    assert ran == ["seats for 4"] and heard(conversation) == ["There are five."]
    wrong, right = results(conversation)
    assert "Invalid JSON" in wrong and "call the tool again" in wrong and right == "5"
    calls = [call for one in conversation.llm.prompts[-1] for call in one.get("tool_calls", ())]
    assert [call["function"]["arguments"] for call in calls] == [
        '{"not_valid_json": "{\\"people\\":4"}',
        '{"people":4}',
    ]


class Stubborn(ScriptedLlm):
    """A language model that calls a tool for as long as it has one."""

    def __init__(self, call: str) -> None:
        super().__init__([call] * 100, first=0.02, each=0.0)
        self.offered: list[int] = []

    async def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        self.offered.append(len(tools.functions))
        async with aclosing(super().answer(messages, tools)) as pieces:
            async for piece in pieces:
                yield piece

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        yield "It did not work."


@pytest.mark.parametrize(
    ("call", "rounds", "last"),
    [
        ('@seats {"people": "many"}', MOST_MENDS, "Call no tool now: tell the caller that it did not work."),
        ("@seats never", MOST_MENDS, "Call no tool now: tell the caller that it did not work."),
        ('@seats {"people": 4}', MOST_ROUNDS, "5"),
    ],
)
def test_model_that_calls_tools_for_ever_has_to_answer(call: str, rounds: int, last: str) -> None:
    agent, _ = desk()
    conversation = Talk(*["can you help me"] * 2, llm=Stubborn(call), agent=agent, speculate=False)
    for at in (0.5, 30.0):
        conversation.says(0.6, at=at)
    conversation.run(60.0)
    assert heard(conversation) == ["It did not work."] * 2, "the caller's next words begin anew"
    assert len(conversation.llm.offered) == 2 * rounds
    told = [entry.text for entry in conversation.session.history.entries if entry.role == "tool"]
    assert told[rounds - 1].endswith(last)
