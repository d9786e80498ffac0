"""Tools in a conversation: in parallel, one after the other, behind words, with mistakes; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.runs import CANCELLED, MOST_MENDS, MOST_ROUNDS
from rejoinder.agent.app.tool_result import TOOL_FAILED
from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Message, Options, ReplyCalled, ReplyDone, ToolCall, Tools


def desk() -> tuple[Agent, list[str]]:
    """Return an agent with a quick, a slow and a broken tool, and a log of what ran."""
    agent: Agent = Agent()
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
    assert results(conversation)[-1] == "s"


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


def test_failure_is_for_the_operator_and_not_in_the_prompt(caplog: pytest.LogCaptureFixture) -> None:
    conversation, _ = asked("@broken {}", "Sorry, that did not work.")
    assert results(conversation) == [TOOL_FAILED]
    assert heard(conversation) == ["Sorry, that did not work."]
    (failure,) = [record for record in caplog.records if record.exc_info]
    assert "the tool broken failed" in failure.getMessage()
    assert "the password is 1234" in str(failure.exc_info)


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


@pytest.mark.parametrize("kept", [False, True])
def test_words_of_the_caller_cancel_a_tool_unless_it_is_kept(kept: bool) -> None:
    agent, ended = Agent(), []

    @agent.tool(keep_on_interrupt=kept)
    async def book() -> str:
        """Book a table."""
        try:
            await asyncio.sleep(2.0)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        ended.append("booked")
        return "It is booked."

    conversation = Talk(
        "book it", "are you there", llm=ScriptedLlm(["@book {}", "I am here.", "It is done."]), agent=agent
    )
    conversation.says(0.6, at=0.5)
    conversation.says(0.6, at=2.2)
    conversation.run(12.0)
    assert ended == ["booked" if kept else "cancelled"]
    told = [entry.text for entry in conversation.session.history.entries if entry.role == "tool"]
    assert told == ["It is booked." if kept else CANCELLED]
    assert heard(conversation)[0] == "I am here."


def test_a_kept_tool_goes_on_after_the_call() -> None:
    agent, booked = Agent(), []

    @agent.tool(keep_on_interrupt=True)
    async def book() -> None:
        """Book a table."""
        await asyncio.sleep(3.0)
        booked.append(True)

    conversation = Talk("book it", llm=ScriptedLlm(["@book {}"]), agent=agent)
    conversation.says(0.6, at=0.5)
    conversation.run(2.5)
    assert booked == [True], "the host waits for it"


def test_instructions_of_the_agent_have_the_date_and_no_examples_of_the_server() -> None:
    told = AgentHost(Agent("It is {time}.", greeting="Hello.")).options(Settings().options())
    assert "{time}" not in told.instructions and told.instructions.startswith("It is ")
    assert (told.greeting, tuple(told.examples)) == ("Hello.", ())
    usual = Settings().options()
    assert AgentHost(Agent()).options(usual).instructions == usual.instructions


def test_a_language_model_without_tools_is_refused() -> None:
    class Mute:
        async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
            yield ""

        async def warm(self, messages: Sequence[Message]) -> None: ...

    agent, _ = desk()
    with pytest.raises(ConfigError, match=r"the agent has tools \(quick, slow, seats, broken\), and this"):
        AgentHost(agent).use(Mute())
    AgentHost(Agent()).use(Mute())


def test_tools_of_one_request_leave_those_of_the_client_in_its_hands() -> None:
    agent, _ = desk()
    call = asyncio.run(AgentHost(agent).answer(CallInfo(), Options()))
    assert call

    def offered(*names: str) -> list[str]:
        tools = Tools([{"type": "function", "function": {"name": name}} for name in names])
        options = call.configured(Options(tools=tools))
        return [one["function"]["name"] for one in options.tools.functions]

    assert offered("weather", "quick") == ["quick", "slow", "seats", "broken", "weather"], "each name once"
    assert offered("news") == ["quick", "slow", "seats", "broken", "news"]

    async def is_own(name: str) -> bool:
        return call.take(Talk(), ReplyCalled(1, ToolCall("a", name, "{}")))

    assert not any(asyncio.run(is_own(name)) for name in ("weather", "news"))
