"""An agent and replies beside the conversation, which are its client's: in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Entry, Message, Options, ReplyDone, ReplyRequest, Session, Tools

SEARCHING = "I have begun to search, and this takes a while, so please stay on the line and be patient."
BESIDE = ReplyRequest(prompt=[Entry("user", "mood?")], speaks=False, tools=Tools(), remembered=False, tag=7)


class SlowSecond(ScriptedLlm):
    """Takes one second to answer a prompt about the mood."""

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the mood."""
        self.open += 1
        try:
            await asyncio.sleep(1.0)
            yield "Calm."
        finally:
            self.open -= 1


def talk(at: float) -> tuple[Talk, list[str]]:
    """Return a call whose search returns at about 4.7 s, while the agent speaks, and the hook's words.

    at: when the client asks for the mood beside it.
    """
    agent: Agent[None, None] = Agent()
    told: list[str] = []

    @agent.tool(background=True)
    async def search() -> str:
        """Search, for three seconds."""
        await asyncio.sleep(3.0)
        return "found"

    agent.on_reply(lambda call, words: told.append(words))
    llm = SlowSecond(["@search {}", SEARCHING, "It is found."], each=0.0)
    conversation = Talk("search it", llm=llm, agent=agent)
    conversation.says(0.6, at=0.5)
    conversation.does(lambda session: session.respond(BESIDE), at=at)
    return conversation.run(14.0), told


@pytest.mark.parametrize("at", [2.2, 3.0, 4.0, 5.0, 5.5])
def test_reply_beside_the_conversation_changes_nothing_in_it(at: float) -> None:
    """The mood begins or ends before the result of the search, or after it, while the agent speaks."""
    conversation, told = talk(at)
    ends = [(status, heard) for _, status, heard in conversation.done() if heard]
    assert sorted(ends) == [("completed", "Calm."), ("completed", SEARCHING), ("completed", "It is found.")]
    assert told == [SEARCHING, "It is found."]


def test_reply_beside_the_conversation_has_the_tools_of_the_client_only() -> None:
    agent: Agent[None, None] = Agent()
    functions = [{"type": "function", "function": {"name": "of_client"}}]

    @agent.tool
    async def of_agent() -> None:
        """Do nothing."""

    async def offered(request: ReplyRequest) -> list[str]:
        call = await AgentHost(agent).answer(CallInfo(), Options(tools=Tools(functions)))
        asked = call.request(request)
        assert asked is not None
        tools = call.options().tools if asked.tools is None else asked.tools
        return [one["function"]["name"] for one in tools.functions]

    beside = ReplyRequest(remembered=False)
    assert asyncio.run(offered(ReplyRequest())) == ["of_agent", "of_client"]
    assert asyncio.run(offered(beside)) == ["of_client"]
    assert asyncio.run(offered(ReplyRequest(tools=Tools(functions), remembered=False))) == ["of_client"]


def test_usage_of_a_reply_is_counted_by_its_own_model() -> None:
    class Counting(ScriptedLlm):
        def __init__(self, tokens: int) -> None:
            super().__init__([SEARCHING])
            self.tokens = tokens

        def count(self, messages: Sequence[Message]) -> int:
            """Return the same for each prompt."""
            return self.tokens

    conversation = Talk("search", llm=Counting(100))

    def hand_over(session: Session) -> None:
        session.hand_over(session.options, replace(session.models, llm=Counting(7)))

    conversation.says(0.6, at=0.5)
    conversation.says(0.6, at=8.0)
    conversation.does(hand_over, at=2.5)
    conversation.run(15.0)
    assert [done.usage.read for done in conversation.of(ReplyDone)] == [100, 7]


def test_reply_beside_the_conversation_has_the_models_of_a_hand_over() -> None:
    first, second = ScriptedLlm(["One."], first=1.0), ScriptedLlm(["Two."])
    conversation = Talk(llm=first)

    def hand_over(session: Session) -> None:
        session.respond(BESIDE)
        session.hand_over(session.options, replace(session.models, llm=second))
        session.respond(BESIDE)

    conversation.does(hand_over, at=0.5)
    conversation.run(3.0)
    assert conversation.done() == [(2, "completed", "Two."), (1, "completed", "One.")]
    assert (first.open, second.open) == (0, 0)
