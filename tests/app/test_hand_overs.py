"""One agent hands a call to another: instructions, tools, hooks, state and models, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.runs import CANCELLED
from rejoinder.agent.app.tool_result import TAKEN_OVER, TOOL_FAILED
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm, ScriptedTts
from rejoinder.pipeline import Message, Models, ReplyAudio, ReplyDone, ToolCall, Tools


class Office:
    """A language model for both desks: it answers as the system prompt and the last message want.

    offered: the names of the tools in each prompt, with the instructions.
    """

    def __init__(self, words: str = "") -> None:
        self.open = 0
        self.asked = 0
        self.offered: list[tuple[str, set[str]]] = []
        self.prompts: list[list[Message]] = []
        self._words = words

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Answer without tools; both agents have some."""
        yield "No tools."

    async def warm(self, messages: Sequence[Message]) -> None:
        """Do nothing."""

    async def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        """Answer the prompt, after 80 ms."""
        self.open += 1
        self.prompts.append(list(messages))
        desk = messages[0]["content"]
        self.offered.append((desk, {one["function"]["name"] for one in tools.functions}))
        results = [one["content"] for one in messages if one["role"] == "tool"]
        try:
            await asyncio.sleep(0.08)
            if desk == "front" and (not results or results[-1] == CANCELLED):
                self.asked += 1
                if self._words:
                    yield self._words
                yield ToolCall(f"h{self.asked}", "to_billing", "{}")
            elif desk == "billing" and TAKEN_OVER in results and "paid" not in results:
                self.asked += 1
                yield ToolCall(f"b{self.asked}", "invoice", "{}")
            else:
                yield f"This is {desk}."
        finally:
            self.open -= 1


@dataclass
class Desk:
    """The front desk's own state of a call."""

    name: str = "front"


class Desks:
    """A front desk that hands calls to billing, and what happened there."""

    def __init__(self, seconds: float = 0.3, hook_seconds: float = 0.0, greeting: str = "") -> None:
        self.log: list[str] = []
        self.billing: Agent = Agent("billing", greeting=greeting, name="billing", fillers=())
        self.front: Agent = Agent("front", agents=[self.billing], name="front", fillers=())

        @self.front.tool
        async def to_billing(call: Call) -> Agent:
            """Hand the call to billing."""
            await asyncio.sleep(seconds)
            self.log.append("handed")
            return self.billing

        @self.billing.tool(keep_on_interrupt=True)
        async def invoice(call: Call) -> str:
            """Look up the invoice."""
            self.log.append("looked up")
            return "paid"

        @self.billing.on_call
        async def note(call: Call) -> None:
            await asyncio.sleep(hook_seconds)
            self.log.append("took over")

        for name, agent in (("front", self.front), ("billing", self.billing)):
            self._log_hooks(name, agent)

    def _log_hooks(self, name: str, agent: Agent) -> None:
        @agent.on_end
        async def end(call: Call) -> None:
            self.log.append(f"{name} ended")

        @agent.on_turn
        async def turn(call: Call, words: str) -> None:
            self.log.append(f"{name}: {words}")


def talk(desks: Desks, *lines: str, words: str = "") -> Talk:
    conversation = Talk(*(lines or ["my invoice"]), llm=Office(words), agent=desks.front)
    conversation.says(0.6, at=0.5)
    return conversation


def taken(conversation: Talk) -> Call:
    """Return the ``Call`` of the agent that has the call at its end."""
    assert conversation._agent
    return conversation._agent.call


def words(conversation: Talk) -> list[str]:
    """Return what the agents said in full, in order."""
    return [done.heard for done in conversation.of(ReplyDone) if done.heard and done.status == "completed"]


def test_call_is_handed_over_with_what_was_said() -> None:
    desks = Desks()
    conversation = talk(desks, words="One moment. ").run(8.0)
    assert words(conversation) == ["One moment.", "This is billing."]
    assert desks.log == [
        "front: my invoice",
        "handed",
        "took over",
        "looked up",
        "front ended",
        "billing ended",
    ]
    assert taken(conversation).agent is desks.billing
    last = conversation.llm.prompts[-1]
    assert [(one["role"], one["content"]) for one in last] == [
        ("system", "billing"),
        ("user", "my invoice"),
        ("assistant", "One moment."),
        ("tool", TAKEN_OVER),
        ("assistant", ""),
        ("tool", "paid"),
    ]


def test_next_agent_speaks_after_the_words_of_the_first() -> None:
    desks = Desks(seconds=0.0, greeting="Billing, hello.")
    conversation = talk(desks, words="I will put you through to my colleague in billing now. ").run(9.0)
    assert words(conversation)[:2] == [
        "I will put you through to my colleague in billing now.",
        "Billing, hello.",
    ]
    spoken = [(at, event) for at, event in conversation.log if isinstance(event, ReplyAudio)]
    first = [at for at, event in spoken if event.turn == 1]
    second = [at for at, event in spoken if event.turn == 2]
    seconds = sum(event.chunk.seconds for _, event in spoken if event.turn == 1)
    assert second[0] >= first[0] + seconds - 0.4, "the second voice begins when the first has been heard"
    assert conversation.ear.text(1, 9.0) == "I will put you through to my colleague in billing now."


def test_each_prompt_has_the_tools_of_its_agent() -> None:
    conversation = talk(Desks()).run(8.0)
    assert set(map(str, conversation.llm.offered)) <= {
        str(("front", {"to_billing"})),
        str(("billing", {"invoice"})),
    }


@pytest.mark.parametrize("hook_seconds", [0.0, 0.6])
@pytest.mark.parametrize("start_ms", range(1_000, 5_000, 50))
def test_interruption_at_any_time_of_the_hand_off_loses_and_doubles_nothing(
    start_ms: int, hook_seconds: float
) -> None:
    """The caller speaks again at every 50 ms: before, during and after the hand-off."""
    desks = Desks(seconds=1.0, hook_seconds=hook_seconds)
    conversation = talk(desks, "my invoice", "and please hurry", words="One moment. ")
    conversation.says(0.6, at=start_ms / 1000)
    conversation.run(16.0)
    assert desks.log.count("took over") == 1, conversation.timeline()
    assert desks.log.count("looked up") == 1
    assert taken(conversation).agent is desks.billing and words(conversation)[-1] == "This is billing."
    desk = [desk for desk, _ in conversation.llm.offered]
    assert desk == sorted(desk, reverse=True), (
        "once billing has the call, the front desk does not speak again"
    )
    for desk_of, tools in conversation.llm.offered:
        assert tools == ({"to_billing"} if desk_of == "front" else {"invoice"})
    assert [log for log in desks.log if log.endswith("ended")] == ["front ended", "billing ended"]


def test_background_tool_of_the_first_agent_keeps_its_call() -> None:
    """It began before the hand-off, and ends after it: state and resources are still those of its agent."""

    @asynccontextmanager
    async def ledger() -> AsyncIterator[str]:
        opened.append("ledger")
        yield "ledger"
        opened.append("closed")

    opened: list[str] = []
    seen: list[tuple] = []
    billing: Agent[None, str] = Agent("billing", lifespan=ledger, name="billing")
    front: Agent[Desk, None] = Agent("front", state=Desk, agents=[billing])

    @front.tool(background=True)
    async def look(call: Call[Desk, None]) -> str:
        """Look for long."""
        await asyncio.sleep(2.0)
        seen.append((call.state, call.resources))
        call.instructions = "changed too late"
        return "found"

    @front.tool
    def to_billing(call: Call[Desk, None]) -> Agent[None, str]:
        """Hand the call to billing."""
        return billing

    @billing.on_call
    def note(call: Call[Any, str]) -> None:
        seen.append((call.state, call.resources))

    llm = ScriptedLlm(("@look @to_billing", "This is billing.", "It is found."))
    conversation = Talk("my invoice", llm=llm, agent=front)
    conversation.says(0.6, at=0.5)
    conversation.run(9.0)
    assert seen == [(Desk(), "ledger"), (Desk(), None)], "billing makes no state: it gets the front desk's"
    assert opened == ["ledger", "closed"]
    assert conversation.session.options.instructions == "billing"
    assert words(conversation) == ["This is billing.", "It is found."]


def test_agents_may_hand_a_call_back() -> None:
    front: Agent = Agent("front", name="front")
    back: Agent = Agent("back", name="back", agents=[front])
    front.agents.append(back)

    @front.tool
    async def to_back() -> Agent:
        """Hand the call to the back."""
        return back

    @back.tool
    async def to_front() -> Agent:
        """Hand the call to the front."""
        return front

    llm = ScriptedLlm(("@to_back", "@to_front", "Front again."))
    conversation = Talk(llm=llm, agent=front)
    conversation.says(0.6, at=0.5)
    conversation.run(6.0)
    assert words(conversation) == ["Front again."] and taken(conversation).agent is front
    assert [prompt[0]["content"] for prompt in llm.prompts] == ["front", "back", "front"]


def test_agent_that_refuses_the_call_leaves_it_where_it_is() -> None:
    desks = Desks()

    @desks.billing.on_call
    def refuse(call: Call) -> None:
        call.refuse("billing is closed")

    llm = ScriptedLlm(("@to_billing", "They are closed."))
    conversation = Talk(llm=llm, agent=desks.front)
    conversation.says(0.6, at=0.5)
    conversation.run(6.0)
    assert taken(conversation).agent is desks.front and words(conversation) == ["They are closed."]
    (result,) = [one["content"] for one in llm.prompts[-1] if one["role"] == "tool"]
    assert result == "The agent billing does not take the call: billing is closed"


def test_agent_that_the_server_does_not_know_gets_no_call(caplog: pytest.LogCaptureFixture) -> None:
    stranger: Agent = Agent("stranger", name="stranger")
    front: Agent = Agent("front")

    @front.tool
    async def away() -> Agent:
        """Hand the call away."""
        return stranger

    llm = ScriptedLlm(("@away", "It did not work."))
    conversation = Talk(llm=llm, agent=front)
    conversation.says(0.6, at=0.5)
    conversation.run(6.0)
    assert [one["content"] for one in llm.prompts[-1] if one["role"] == "tool"] == [TOOL_FAILED]
    assert "stranger is unknown here: name it in agents=[...]" in caplog.text


def test_next_agent_has_models_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    desks = Desks()
    other_llm, other_tts = ScriptedLlm(("This is another model.",)), ScriptedTts(rate=16_000)
    desks.billing.models["night"] = {"llm": "scripted:llm"}

    @desks.billing.on_call
    def choose(call: Call) -> None:
        call.models = "night"

    conversation = Talk(llm=ScriptedLlm(("@to_billing",)), agent=desks.front)
    night = Models(conversation.vad, conversation.stt, other_llm, other_tts, None, conversation.load_shedder)
    host = conversation.host
    assert host is not None and host.models == {"night": {"llm": "scripted:llm"}}
    host.variants["night"] = night
    conversation.says(0.6, at=0.5)
    conversation.run(6.0)
    assert words(conversation) == ["This is another model."]
    rates = {event.chunk.rate for event in conversation.of(ReplyAudio)}
    assert rates == {16_000}


def test_client_that_changes_its_session_keeps_the_next_agents_instructions() -> None:
    """A Realtime client sends all of its settings, with the instructions that it was told at the start."""
    desks = Desks()
    conversation = talk(desks)

    def update(session: Any) -> None:
        agent = conversation._agent
        assert agent is not None
        settings = replace(session.options, instructions="front", idle_s=idle_s.pop(0), tools=Tools())
        session.configure(agent.configured(settings))

    idle_s = [20.0, 30.0]
    conversation.does(update, at=0.1)
    conversation.does(update, at=4.0)
    conversation.run(6.0)
    options = conversation.session.options
    assert (options.instructions, options.idle_s) == ("billing", 30.0)
    assert [one["function"]["name"] for one in options.tools.functions] == ["invoice"]


def test_host_finds_all_agents_once() -> None:
    first: Agent = Agent("a")
    second: Agent = Agent("b", agents=[first])
    first.agents += [second, first]
    assert first.reachable == [first, second] and second.reachable == [second, first]
    assert AgentHost(first).models == {}
