"""Faults that users of other frameworks have reported: each has a test of its name here, in virtual time.

Others are tested where their subject is: a goodbye that the hang-up cuts off and a tool of a discarded answer
that hangs up in ``test_hanging_up``, an interruption at any moment of a tool in ``test_interruption_sweep``.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt
from rejoinder.pipeline import EndOfTurn, Endpointing, ReplyCalled, ReplyDone, Transcript


def booking(kept: bool = False, seconds: float = 1.0) -> tuple[Agent, list[str]]:
    agent, ran = Agent(fillers=()), list[str]()

    @agent.tool(keep_on_interrupt=kept)
    async def book() -> str:
        """Book a table."""
        ran.append("book")
        await asyncio.sleep(seconds)
        return "booked"

    return agent, ran


def talk(agent: Agent, *replies: str, says: tuple[float, ...], until: float = 12.0, **more: Any) -> Talk:
    conversation = Talk(
        *["book it"] * len(says), llm=ScriptedLlm(list(replies), 0.08, 0.0), agent=agent, **more
    )
    for at in says:
        conversation.says(0.6, at=at)
    return conversation.run(until)


def heard(conversation: Talk) -> list[str]:
    return [done.heard for done in conversation.of(ReplyDone) if done.heard]


def test_tool_of_a_discarded_generation_does_not_run() -> None:
    """pipecat 4997: it ran, and hung up on a live caller."""
    agent, ran = booking()
    conversation = talk(agent, "@book {}", "It is done.", says=(0.5, 1.3))
    assert len(conversation.llm.prompts) > 2, "an answer was discarded"
    assert ran == ["book"] and len(conversation.of(ReplyCalled)) == 1


def test_result_that_lands_while_the_caller_speaks_is_not_dropped() -> None:
    """pipecat 5823."""
    agent, _ = booking(kept=True, seconds=1.3)
    conversation = talk(agent, "@book {}", *["It is done."] * 2, says=(0.5, 2.6))
    (result,) = [entry for entry in conversation.session.history.entries if entry.role == "tool"]
    assert result.text == "booked" and heard(conversation) == ["It is done."]
    assert [one["content"] for one in conversation.llm.prompts[-1] if one["role"] == "tool"] == ["booked"]


def test_tool_is_not_in_progress_for_ever_after_a_barge_in() -> None:
    """pipecat 5779, 3661 and 4300."""
    agent, _ = booking(seconds=30.0)
    conversation = talk(agent, "@book {}", "I have stopped.", says=(0.5, 2.4))
    assert not conversation.session.history.pending and heard(conversation) == ["I have stopped."]


def test_text_and_a_tool_in_one_turn_are_not_said_twice() -> None:
    """pipecat 2787."""
    agent, ran = booking()
    conversation = talk(agent, "Let me see. @book {}", "It is done.", says=(0.5,))
    assert heard(conversation) == ["Let me see.", "It is done."] and ran == ["book"]


def test_hold_music_does_not_keep_the_agent_for_21_minutes() -> None:
    """AIReceptionist 11: the call is over at its longest duration, whatever is on the line."""
    agent, _ = booking()
    music = [(float(start), start + 9.0) for start in range(1, 1260, 10)]
    conversation = Talk("la la la", agent=agent, llm=ScriptedLlm(["Hello?"], 0.08, 0.0), max_call_s=120.0)
    for begin, end in music:
        conversation.says(end - begin, at=begin)
    conversation.run(200.0)
    assert conversation.hung_up and conversation.hung_up[0] < 150.0


def test_audio_that_never_ends_is_no_turn_of_80_minutes() -> None:
    """livekit 5862."""
    agent, _ = booking()
    limited = Endpointing(release=0.35, pause_ms=64, min_wait_ms=320, max_wait_ms=880, max_turn_ms=20_000)
    conversation = Talk("on and on", agent=agent, llm=ScriptedLlm(["Yes."], 0.08, 0.0), endpointing=limited)
    conversation.says(90.0, at=0.5)
    conversation.run(95.0)
    turns = conversation.when(EndOfTurn)
    assert len(turns) >= 3 and turns[0] < 22.0


class Dead(ScriptedStt):
    """A recogniser that answers nothing any more."""

    def __init__(self) -> None:
        super().__init__([])

    def stream(self) -> Any:
        return self

    def feed(self, chunk: Any) -> None:
        pass

    def reset(self) -> None:
        pass

    async def transcribe(self, *, is_final: bool) -> Transcript:
        await asyncio.sleep(1e6)
        raise AssertionError


@pytest.mark.parametrize("limit", [30.0, 300.0])
def test_dead_pipeline_does_not_bill_on(limit: float) -> None:
    """bolna 1050: 4,591 s against a limit of 300 s."""
    agent, _ = booking()
    conversation = Talk("hello", agent=agent, stt=Dead(), max_call_s=limit)
    conversation.says(0.6, at=0.5)
    conversation.run(limit + 60.0)
    assert conversation.hung_up and conversation.hung_up[0] == pytest.approx(limit, abs=12.0)
