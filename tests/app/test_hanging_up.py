"""An agent ends the call, after the last word was heard, or after replies that failed; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call, CallInfo
from rejoinder.agent.app.giving_up import Failures, GiveUp
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.hosting import Hosting
from rejoinder.agent.app.runs import CANCELLED, SLOW_S
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Message, ModelError, Options, ReplyAudio, ReplyDone, Trace

LONG = "Thank you very much for your call and for your patience, and do come again some day soon. Goodbye!"


def leaving(say: str, kept: bool = False) -> tuple[Agent, list[str]]:
    agent, ended = Agent(), list[str]()

    @agent.tool(keep_on_interrupt=kept)
    async def leave(call: Call) -> None:
        """End the call."""
        await call.hang_up(say=say)

    @agent.on_end
    async def note(call: Call) -> None:
        ended.append(call.ended)

    return agent, ended


def talk(agent: Agent, *replies: str, says: tuple[float, ...] = (0.5,), until: float = 20.0) -> Talk:
    conversation = Talk(*["bye"] * len(says), llm=ScriptedLlm(list(replies), 0.08, 0.0), agent=agent)
    for at in says:
        conversation.says(0.6, at=at)
    return conversation.run(until)


def heard(conversation: Talk) -> list[str]:
    return [done.heard for done in conversation.of(ReplyDone) if done.heard]


def plays_until(conversation: Talk) -> float:
    """Return the time at which the last audio has played."""
    ends = 0.0
    for at, event in conversation.log:
        if isinstance(event, ReplyAudio):
            ends = max(ends, at) + event.chunk.seconds
    return ends


def test_goodbye_of_the_model_is_heard_to_its_end() -> None:
    agent, ended = leaving("")
    conversation = talk(agent, f"{LONG} @leave {{}}")
    assert heard(conversation) == [LONG] and conversation.hung_up
    at, reason = conversation.hung_up
    assert 0.0 <= at - plays_until(conversation) < 0.2
    assert ended == [reason] == ["the agent has ended the call"]


def test_goodbye_longer_than_a_slow_tool_is_followed_by_nothing() -> None:
    agent, _ = leaving(LONG)
    conversation = talk(agent, "@leave {}", "Are you still there?")
    assert heard(conversation) == [LONG] and conversation.hung_up
    assert conversation.hung_up[0] > 1.5 + SLOW_S
    assert 0.0 <= conversation.hung_up[0] - plays_until(conversation) < 0.2


def test_caller_who_speaks_over_the_goodbye_is_listened_to_and_stays() -> None:
    agent, ended = leaving(LONG)
    conversation = talk(agent, "@leave {}", "Of course.", "Of course.", says=(0.5, 3.0), until=12.0)
    assert conversation.hung_up is None and ended == ["the client has left"]
    cut, answer = heard(conversation)
    assert cut != LONG and LONG.startswith(cut) and answer == "Of course."
    results = [entry.text for entry in conversation.session.history.entries if entry.role == "tool"]
    assert results == [CANCELLED]


def test_kept_tool_hangs_up_once_the_caller_was_listened_to() -> None:
    agent, _ = leaving(LONG, kept=True)
    conversation = talk(agent, "@leave {}", "Of course.", "Of course.", says=(0.5, 3.0))
    assert heard(conversation)[1:] == ["Of course."]
    assert conversation.hung_up and 0.0 <= conversation.hung_up[0] - plays_until(conversation) < 0.2


def test_tool_of_a_discarded_answer_does_not_hang_up() -> None:
    """The end of the turn was guessed, and the caller went on: no faults of a dropped guess."""
    agent, _ = leaving("Goodbye!")
    conversation = talk(agent, "@leave {}", "Sure.", says=(0.5, 1.25), until=3.0)
    assert len(conversation.llm.prompts) > 1, "there was a guess"
    assert conversation.hung_up and conversation.hung_up[0] > 2.0
    assert heard(conversation) == ["Goodbye!"]


# --- after replies that failed ----------------------------------------------------------------------------

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


def failing(agent: Agent, fails: Sequence[int], turns: int = 3, until: float = 30.0) -> Talk:
    lines = [f"turn number {number}" for number in range(turns)]
    conversation = Talk(*lines, llm=Broken(fails), agent=agent, apology=SORRY, speculate=False)
    for number in range(turns):
        conversation.says(0.6, at=0.5 + 6.0 * number)
    return conversation.run(until)


def test_a_call_ends_after_replies_that_failed_in_a_row() -> None:
    agent = Agent()
    agent.on_failure(GiveUp(2, BYE))
    conversation = failing(agent, fails=(0, 1))
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
    conversation = failing(agent, fails=(0, 1))
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
        (["failed", "calls", "failed"], [1, None, 2]),
        (["failed", "incomplete"], [1, 0]),
    ],
)
def test_failures_in_a_row(replies: list[str], expected: list[int | None]) -> None:
    failures, counts = Failures(), []
    for turn, status in enumerate(replies):
        if status in ("given", "calls"):
            failures.no_answer(turn)
        if status == "interrupted apology":
            failures.traced(Trace(turn, marks={"apology": 1.0}))
            status = "cancelled"
        counts.append(failures.done(turn, "completed" if status in ("given", "calls") else status))
    assert counts == expected


def test_a_reply_that_succeeds_starts_the_count_anew() -> None:
    agent, counts = Agent(), list[int]()
    agent.on_failure(GiveUp(2, BYE))

    @agent.on_failure
    async def note(call: Call, failures: int) -> None:
        counts.append(failures)

    conversation = failing(agent, fails=(0, 2))
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

    failing(agent, fails)
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

    failing(agent, fails=(0,), turns=1, until=8.0)
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
