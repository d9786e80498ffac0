"""Words that a tool says while it runs; in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.agent_call import LATE_RESULT
from rejoinder.agent.app.call import Call, CallInfo
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.text_answers import agent_answer
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Options, ReplyAudio, ReplyCalled, ReplyDone
from rejoinder.pipeline.history import History


def booking(
    *words: str, before: float = 0.0, seconds: float = 2.0, keep_on_interrupt: bool = False
) -> tuple[Agent, list[float]]:
    """Return an agent whose tool says ``words`` after ``before`` seconds, and takes ``seconds`` after that.

    The list gets the loop times at which the tool went on after its words.
    """
    agent, went_on = Agent(), list[float]()

    @agent.tool(keep_on_interrupt=keep_on_interrupt)
    async def book(call: Call) -> str:
        """Book a table."""
        await asyncio.sleep(before)
        for one in words:
            await call.say(one)
            went_on.append(asyncio.get_running_loop().time())
        if seconds:
            await asyncio.sleep(seconds)
        return "booked"

    return agent, went_on


def talk(agent: Agent, *replies: str, says: tuple[float, ...] = (0.5,), until: float = 12.0) -> Talk:
    llm = ScriptedLlm(list(replies), first=0.08, each=0.0)
    conversation = Talk(*["book it"] * len(says), llm=llm, agent=agent)
    for at in says:
        conversation.says(0.6, at=at)
    return conversation.run(until)


def heard(conversation: Talk) -> list[str]:
    return [done.heard for done in conversation.of(ReplyDone) if done.heard]


def test_words_are_heard_while_the_tool_runs_and_the_result_after_it() -> None:
    agent, went_on = booking("Holding a seat.")
    conversation = talk(agent, "@book {}", "-", "It is booked.")
    assert heard(conversation) == ["Holding a seat.", "It is booked."]
    (called,) = conversation.when(ReplyCalled)
    first = next(at for at, event in conversation.log if isinstance(event, ReplyAudio))
    assert first - called < 0.2 and went_on[0] < first + 0.2, "the tool goes on while the words play"
    call, result, said, cue = conversation.llm.prompts[-1][-4:]
    assert call["tool_calls"] and (result["role"], result["content"]) == ("tool", "booked")
    assert (said["content"], cue["content"]) == ("Holding a seat.", LATE_RESULT)
    assert LATE_RESULT not in [text for _, text in conversation.said()]


def test_words_follow_those_that_the_model_has_said() -> None:
    agent, _ = booking("Holding a seat.", "Nearly there.", seconds=0.0)
    conversation = talk(agent, "Let me look. @book {}", *["It is booked."] * 3)
    assert heard(conversation) == ["Let me look.", "Holding a seat.", "Nearly there.", "It is booked."]
    assert all(done.status == "completed" for done in conversation.of(ReplyDone) if done.heard)


def test_words_are_never_said_over_the_caller() -> None:
    agent, _ = booking("Holding a seat.", before=1.2, keep_on_interrupt=True)
    conversation = talk(agent, "@book {}", "I am on it.", *["It is booked."] * 3, says=(0.5, 2.4))
    assert heard(conversation) == ["I am on it.", "Holding a seat.", "It is booked."]


def test_tool_that_the_caller_cancels_says_nothing_more() -> None:
    agent, went_on = booking("Holding a seat.", before=1.6)
    conversation = talk(agent, "@book {}", "Never mind, then.", says=(0.5, 2.2))
    assert heard(conversation) == ["Never mind, then."] and went_on == []


def test_tool_that_outlives_its_call_says_nothing_and_ends() -> None:
    agent, went_on = booking("Holding a seat.", before=2.0, keep_on_interrupt=True)
    conversation = talk(agent, "@book {}", until=2.5)
    assert heard(conversation) == [] and len(went_on) == 1


def test_words_precede_the_answer_to_typed_ones() -> None:
    agent, _ = booking("Holding a seat.", seconds=0.0)
    host, history = AgentHost(agent), History()
    history.add_user("book it")

    async def answer() -> str:
        llm = ScriptedLlm(["@book {}", "It is booked."])
        pieces = agent_answer(llm, history, host, host.new_call(CallInfo(), Options()))
        return "".join([piece async for piece in pieces])

    assert virtual_clock.run(answer()).split() == "Holding a seat. It is booked.".split()


def test_only_text_can_be_said() -> None:
    with pytest.raises(TypeError, match=r"call\.say needs text, and this is of type int"):
        asyncio.run(Call(CallInfo()).say(7))  # type: ignore[arg-type]
