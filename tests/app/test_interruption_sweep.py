"""The caller speaks at every moment around a tool's run, in steps of 50 ms of virtual time.

Whenever that is: no call lacks its result, none is made twice by the same words, no reply is said twice, the
caller hears of every result, and no silence follows a tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.agent.app.runs import CANCELLED
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import EndOfTurn, Message, ReplyAudio, ReplyDone, ToolCall, Tools

MOMENTS = [round(0.7 + 0.05 * step, 2) for step in range(120)]
"""When the caller speaks again, in seconds: from within the first words to after the last answer."""
TOOL_S = 1.5
SILENCE_S = 1.0
"""Longest wait for an answer where no tool runs, in seconds: the end of the turn and the model's time."""


class Clerk(ScriptedLlm):
    """A language model that books when it is asked to, and tells the result until the caller has heard it."""

    def __init__(self) -> None:
        super().__init__(first=0.08, each=0.0)

    async def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        self.prompts.append(list(messages))
        said = [one["content"] for one in messages if one["role"] == "user"]
        results = [one["content"] for one in messages if one["role"] == "tool"]
        asked = said and said[-1].endswith("book it")
        if asked and messages[-1]["role"] == "user":
            async for word in self._say("Let me look."):
                yield word
            yield ToolCall(f"call_{len(self.prompts)}", "book", "{}")
            return
        told = " ".join(one["content"] for one in messages if one["role"] == "assistant")
        words = booked(results[-1]) if results else ""
        async for word in self._say("I am here." if words in told else words):
            yield word


def booked(result: str) -> str:
    return f"The booking is {result} now."


def booking(kept: bool, says: bool) -> tuple[Agent, list[str]]:
    agent, ran = Agent(), list[str]()

    @agent.tool(keep_on_interrupt=kept)
    async def book(call: Call) -> str:
        """Book a table."""
        ran.append("began")
        if says:
            await call.say("Holding a seat.")
        await asyncio.sleep(TOOL_S)
        ran.append("ended")
        return "done"

    return agent, ran


@pytest.mark.parametrize("kept", [False, True], ids=["cancelled", "kept"])
@pytest.mark.parametrize("says", [False, True], ids=["quiet", "saying"])
def test_no_moment_of_an_interruption_loses_or_doubles_anything(kept: bool, says: bool) -> None:
    for moment in MOMENTS:
        agent, ran = booking(kept, says)
        conversation = Talk("book it", "are you there", llm=Clerk(), agent=agent)
        conversation.says(0.6, at=0.5)
        conversation.says(0.5, at=moment)
        try:
            conversation.run(11.0)
            check(conversation, ran, kept)
        except AssertionError as error:
            error.add_note(f"interrupted at {moment} s\n" + "\n".join(conversation.timeline()))
            raise


def check(conversation: Talk, ran: list[str], kept: bool) -> None:
    history = conversation.session.history
    calls = [entry for entry in history.entries if entry.role == "call"]
    results = [entry.text for entry in history.entries if entry.role == "tool"]
    assert not history.pending and len(results) == len(calls) == ran.count("began") <= 1
    assert results in ([], ["done"], [CANCELLED])
    assert (results == ["done"]) == ("ended" in ran)
    if kept:
        assert CANCELLED not in results

    done = [one for one in conversation.of(ReplyDone) if one.heard]
    told = [one.heard for one in done]
    assert all(one.status in ("completed", "cancelled") for one in done)
    complete = [words for words, one in zip(told, done, strict=True) if one.status == "completed"]
    assert len(complete) == len(set(complete)), f"said twice: {told}"
    if results:
        assert booked(results[-1]) in told, f"the caller knows: {told}"

    audio = [at for at, event in conversation.log if isinstance(event, ReplyAudio)]
    for ended in conversation.when(EndOfTurn):
        wait = min(at for at in audio if at >= ended) - ended
        assert wait <= SILENCE_S + (TOOL_S if calls else 0.0), f"silence of {wait:.1f} s after {ended} s"
