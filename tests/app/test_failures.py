"""What an agent does after replies that failed: its hooks run, and the call may end; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call, CallInfo
from rejoinder.agent.app.giving_up import Failures, GiveUp
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.hosting import Hosting
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Message, ModelError, Options, ReplyDone, Trace

SORRY = "Sorry, not now."
BYE = "It still does not work. Goodbye."


class Broken(ScriptedLlm):
    """Fails in the turns of the caller that ``fails`` names, counted from 0."""

    def __init__(self, fails: Sequence[int]) -> None:
        super().__init__(["Fine."])
        self.fails = fails

    def _line(self, messages: Sequence[Message]) -> str:
        turn = sum(message["role"] == "user" for message in messages) - 1
        if turn in self.fails:
            raise ModelError("scripted", "dead")
        return super()._line(messages)


def talk(agent: Agent, fails: Sequence[int], turns: int = 3, until: float = 30.0) -> Talk:
    lines = [f"turn number {number}" for number in range(turns)]
    conversation = Talk(*lines, llm=Broken(fails), agent=agent, apology=SORRY, speculate=False)
    for number in range(turns):
        conversation.says(0.6, at=0.5 + 6.0 * number)
    return conversation.run(until)


def heard(conversation: Talk) -> list[str]:
    return [done.heard for done in conversation.of(ReplyDone) if done.heard]


def test_a_call_ends_after_replies_that_failed_in_a_row() -> None:
    agent = Agent()
    agent.on_failure(GiveUp(2, BYE))
    conversation = talk(agent, fails=(0, 1))
    assert heard(conversation) == [SORRY, SORRY, BYE]
    assert conversation.hung_up and conversation.hung_up[1] == "2 replies in a row have failed"


def test_a_hook_that_hangs_holds_up_no_other_and_may_speak() -> None:
    agent, said = Agent(), list[int]()

    @agent.on_failure
    async def hangs(call: Call, failures: int) -> None:
        await asyncio.sleep(1e6)

    @agent.on_failure
    async def speaks(call: Call, failures: int) -> None:
        await call.say("I am asking a colleague.")
        await asyncio.sleep(1.0)
        said.append(failures)

    agent.on_failure(GiveUp(2, BYE))
    conversation = talk(agent, fails=(0, 1))
    assert said[0] == 1, "its own words are no answer"
    assert BYE in heard(conversation) and conversation.hung_up


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        (["failed", "failed"], [1, 2]),
        (["failed", "completed", "failed"], [1, 0, 1]),
        (["failed", "cancelled", "failed"], [1, None, 2]),
        (["failed", "interrupted apology", "failed"], [1, 2, 3]),
        (["failed", "given", "failed"], [1, None, 2]),
        (["failed", "incomplete"], [1, 0]),
    ],
)
def test_failures_in_a_row(replies: list[str], expected: list[int | None]) -> None:
    failures, counts = Failures(), []
    for turn, status in enumerate(replies):
        failures.started(turn, is_given=status == "given")
        if status == "interrupted apology":
            failures.traced(Trace(turn, marks={"apology": 1.0}))
            status = "cancelled"
        counts.append(failures.done(turn, "completed" if status == "given" else status))
    assert counts == expected


def test_a_reply_that_succeeds_starts_the_count_anew() -> None:
    agent, counts = Agent(), list[int]()
    agent.on_failure(GiveUp(2, BYE))

    @agent.on_failure
    async def note(call: Call, failures: int) -> None:
        counts.append(failures)

    conversation = talk(agent, fails=(0, 2))
    assert heard(conversation) == [SORRY, "Fine.", SORRY] and conversation.hung_up is None
    assert counts == [1, 1]


@pytest.mark.parametrize(("fails", "ended"), [((0,), "cancelled"), ((0, 1), "cancelled"), ((2,), "done")])
def test_a_hook_that_still_runs_is_cancelled_by_the_next_reply(fails: Sequence[int], ended: str) -> None:
    agent, ends = Agent(), list[str]()

    @agent.on_failure
    async def calls_an_operator(call: Call, failures: int) -> None:
        try:
            await asyncio.sleep(10.0)
            ends.append("done")
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    talk(agent, fails)
    assert ends[0] == ended


def test_hooks_end_with_the_call() -> None:
    agent, ends = Agent(), list[float]()

    @agent.on_failure
    async def hangs(call: Call, failures: int) -> None:
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            ends.append(asyncio.get_running_loop().time())
            raise

    talk(agent, fails=(0,), turns=1, until=8.0)
    assert ends == [pytest.approx(8.0, abs=0.1)]


def test_servers_hook_stays_when_the_agent_is_replaced() -> None:
    give_up = GiveUp(3, BYE)

    async def scenario() -> None:
        hosting = Hosting(Agent(), give_up)
        async with hosting.running():
            await hosting.replace(Agent())
            assert hosting.current.give_up is give_up

    asyncio.run(scenario())


def test_a_server_without_hooks_has_no_part_in_calls() -> None:
    async def has_part(host: AgentHost) -> bool:
        return await host.answer(CallInfo(), Options()) is not None

    assert not asyncio.run(has_part(AgentHost(Agent())))
    assert asyncio.run(has_part(AgentHost(Agent(), give_up=GiveUp(1, BYE))))
