"""What a program does before, during and after a call: hooks, state and lifespan; in virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.agent_call import changed_in
from rejoinder.agent.app.call import Call, CallInfo, RefusedCall
from rejoinder.agent.app.functions.mistakes import BrokenAgent
from rejoinder.agent.app.host import ANSWER_S, BROKEN_AGENT, AgentHost
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import POINTS, Endpointing, Message, Options, ReplyDone, turn_taking


@dataclass
class Order:
    """What one call wants."""

    words: list[str] = field(default_factory=list)


def test_one_call_from_its_beginning_to_its_end() -> None:
    agent: Agent[Order] = Agent(state=Order)
    ended: list[Any] = []

    @agent.on_call
    async def greet(call: Call[Order]) -> None:
        call.greeting = f"Hello from {call.info.wire}."
        call.instructions = "Be brief."
        call.tools = {}

    @agent.tool
    def never() -> None:
        """Never called."""

    @agent.on_turn
    async def note(call: Call[Order], words: str) -> None:
        call.state.words.append(words)

    @agent.on_end
    async def bill(call: Call[Order]) -> None:
        ended.append((call.state.words, call.ended, round(call.seconds), call.transcript))

    conversation = Talk("a table please", replies=("For how many?",), agent=agent)
    conversation.says(0.6, at=3.0)
    conversation.run(7.0)
    assert [done.heard for done in conversation.of(ReplyDone)] == ["Hello from simulated.", "For how many?"]
    prompted = "Be brief. You have said to the caller: Hello from simulated."
    assert conversation.llm.prompts[-1][0]["content"] == prompted
    assert conversation.session.options.tools.functions == []
    ((words, reason, seconds, transcript),) = ended
    assert (words, reason, seconds) == (["a table please"], "the client has left", 7)
    assert [(one["role"], one["content"]) for one in transcript] == [
        ("assistant", "Hello from simulated."),
        ("user", "a table please"),
        ("assistant", "For how many?"),
    ]


def test_each_call_has_a_state_of_its_own_and_all_share_the_resources() -> None:
    happened: list[str] = []

    @asynccontextmanager
    async def database() -> AsyncIterator[dict[str, int]]:
        happened.append("opened")
        yield {"calls": 0}
        happened.append("closed")

    agent: Agent[Order, dict[str, int]] = Agent(state=Order, lifespan=database)

    @agent.on_call
    async def count(call: Call[Order, dict[str, int]]) -> None:
        call.resources["calls"] += 1
        call.state.words.append(str(call.resources["calls"]))

    async def hold() -> list[list[str]]:
        host = AgentHost(agent)
        async with host.running():
            calls = [await host.answer(CallInfo(), Options()) for _ in range(2)]
        return [one.call.state.words for one in calls if one]

    assert virtual_clock.run(hold()) == [["1"], ["2"]] and happened == ["opened", "closed"]


def answered(agent: Agent, info: CallInfo | None = None) -> None:
    asyncio.run(AgentHost(agent).answer(info or CallInfo(), Options()))


def test_a_hook_refuses_a_call_with_a_reason() -> None:
    agent = Agent()

    @agent.on_call
    def friends_only(call: Call) -> None:
        if call.info.caller != "+49301":
            call.refuse("we are closed")

    answered(agent, CallInfo(caller="+49301"))
    with pytest.raises(RefusedCall, match="we are closed"):
        answered(agent)


@pytest.mark.parametrize("where", ["on_call", "state"])
def test_a_mistake_before_a_call_is_for_the_operator(where: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*call: Call) -> None:
        raise KeyError("the password is 1234")

    agent = Agent(state=broken if where == "state" else None)
    agent.on_call(broken)
    with pytest.raises(RefusedCall, match=f"^{BROKEN_AGENT}$"):
        answered(agent, CallInfo("call-7"))
    (failure,) = [record for record in caplog.records if record.exc_info]
    assert "call call-7" in failure.getMessage() and "1234" in str(failure.exc_info)


def test_hooks_before_a_call_that_take_too_long_refuse_it(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent()

    @agent.on_call
    async def slow(call: Call) -> None:
        await asyncio.sleep(ANSWER_S + 1.0)

    async def hold() -> None:
        with pytest.raises(RefusedCall, match=BROKEN_AGENT):
            await AgentHost(agent).answer(CallInfo(), Options())

    virtual_clock.run(hold())
    assert "took longer than 8 s" in str(caplog.records[-1].exc_info)


def test_mistakes_of_later_hooks_disturb_no_call(caplog: pytest.LogCaptureFixture) -> None:
    agent, after = Agent(), list[str]()

    @agent.on_turn
    @agent.on_end
    async def broken(*anything: Any) -> None:
        raise RuntimeError("no database")

    @agent.on_end
    async def note(call: Call) -> None:
        after.append(call.ended)

    conversation = Talk("hello", replies=("Hi.",), agent=agent)
    conversation.says(0.6, at=0.5)
    conversation.run(4.0)
    assert [done.heard for done in conversation.of(ReplyDone)] == ["Hi."]
    assert after == ["the client has left"]
    assert sorted(record.getMessage() for record in caplog.records if record.exc_info) == [
        "call call-1: on_end failed",
        "call call-1: on_turn failed",
    ]


def test_a_lifespan_that_fails_says_where() -> None:
    @asynccontextmanager
    async def database() -> AsyncIterator[None]:
        raise OSError("no such file")
        yield

    async def run() -> None:
        async with AgentHost(Agent(lifespan=database)).running():
            pass

    with pytest.raises(BrokenAgent, match=r"database .*test_hooks.py, line \d+\) failed: .*no such file"):
        asyncio.run(run())


def test_a_tool_changes_the_instructions() -> None:
    agent = Agent("Speak English.")

    @agent.tool
    async def german(call: Call) -> None:
        """Speak German."""
        call.instructions = "Sprich Deutsch."

    llm = ScriptedLlm(["@german {}", "Gerne."], first=0.08, each=0.0)
    conversation = Talk("in german please", llm=llm, agent=agent)
    conversation.says(0.6, at=0.5)
    conversation.run(5.0)
    assert [prompt[0]["content"] for prompt in llm.prompts] == ["Speak English.", "Sprich Deutsch."]


class Noting:
    """A line that notes the threads in which the options are applied."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    async def say(self, words: str) -> None: ...

    async def hang_up(self, say: str, reason: str) -> None: ...

    def transcript(self) -> list[Message]:
        return []

    def configured(self) -> None:
        self.threads.append(threading.get_ident())


def test_changes_from_a_thread_are_applied_on_the_event_loop() -> None:
    async def change() -> tuple[str, list[int]]:
        call, line = Call(CallInfo()), Noting()
        call.connect(line)
        await asyncio.to_thread(setattr, call, "instructions", "Sprich Deutsch.")
        call.patience = 2.0
        call.take_turns("patient")
        assert call.patience == POINTS["patient"].patience
        await asyncio.sleep(0)
        return call.instructions, line.threads

    assert asyncio.run(change()) == ("Sprich Deutsch.", [threading.get_ident()] * 3)


def test_turns_are_taken_otherwise_where_a_long_silence_has_ended_them() -> None:
    call = Call(CallInfo(), options=Options(endpointing=Endpointing(min_wait_ms=2_000, max_wait_ms=2_000)))
    call.take_turns("eager")
    endpointing = call.options.endpointing
    assert (endpointing.patience, endpointing.max_wait_ms) == (POINTS["eager"].patience, 2_000)
    with pytest.raises(ValueError, match="hasty"):
        call.take_turns("hasty")  # type: ignore[arg-type]
    call.take_turns(speakers="many")
    assert (call.options.endpointing.speakers, call.patience) == ("many", POINTS["eager"].patience)


def test_a_client_changes_of_turn_taking_what_it_names() -> None:
    usual = Endpointing()
    own = replace(turn_taking("patient"), speakers="many", min_wait_ms=3_000, max_wait_ms=3_000)
    assert changed_in(own, usual, usual) == own
    eager = changed_in(own, usual, turn_taking("eager"))
    assert (eager.speakers, eager.patience) == ("many", POINTS["eager"].patience)
    assert (eager.min_wait_ms, eager.max_wait_ms) == (3_000, 3_000)


WRONG: list[tuple[Callable[[Agent], object], str]] = [
    (lambda agent: agent.on_call(lambda: None), r"on_call hook .* takes no parameters, and it is called"),
    (lambda agent: agent.on_turn(lambda call: None), "write def <lambda>\\(call, words\\)"),
    (lambda agent: Agent(state=Order()), "each call needs its own: give the class, state=Order"),  # type: ignore[arg-type]
    (lambda agent: Agent(lifespan=asynccontextmanager(no_yield)()), "lifespan was called already"),  # type: ignore[arg-type]
    (lambda agent: setattr(Call(CallInfo()), "instructions", 7), "call.instructions needs text"),
    (lambda agent: setattr(Call(CallInfo()), "options", {}), "call.options is an Options"),
    (lambda agent: setattr(Call(CallInfo()), "tools", {"book": no_yield}), "call.tools maps names to tools"),
]


async def no_yield() -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(("does", "why"), WRONG)
def test_what_cannot_work_is_said_at_once(does: Callable[[Agent], object], why: str) -> None:
    with pytest.raises(TypeError, match=why):
        does(Agent())


def test_an_answered_call_cannot_be_refused() -> None:
    call = Call(CallInfo())
    call.ended = "over"
    with pytest.raises(RuntimeError, match="use hang_up"):
        call.refuse("too late")
