"""Simulated callers: what their calls look like to the millisecond, and that they find what is wrong."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
from support.paths import ROOT
from support.patience import PATIENCE

from rejoinder.agent.simulate import actor, virtual_clock
from rejoinder.agent.simulate.actor import NothingHeard
from rejoinder.agent.simulate.caller import Caller
from rejoinder.agent.simulate.calls import SCRIPTS, agent, random_caller
from rejoinder.agent.simulate.invariants import check, hang_ups, interruptions
from rejoinder.agent.simulate.line import Line
from rejoinder.models.scripted import ScriptedLlm, ScriptedTurnModel
from rejoinder.pipeline import Message, Options, Session, SpeechStarted
from rejoinder.pipeline.history import History

CALLS = Path(__file__).with_name("calls.txt")
"""What happens in each script. To renew it: ``python tests/simulate/test_callers.py``."""


def timeline_of(name: str) -> str:
    call = SCRIPTS[name]().call(debug=True)
    check(call)
    history = [f"{role}: {text}" for role, text in call.history]
    return "\n".join([f"== {name}", *call.timeline(), *history, f"latency: {call.latency_ms} ms", ""])


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_call_has_the_recorded_timeline_to_the_millisecond(name: str) -> None:
    known = {part.split("\n")[0]: part for part in CALLS.read_text().split("== ")[1:]}
    assert timeline_of(name).removeprefix("== ") == known[name].rstrip("\n") + "\n"


def test_a_call_is_the_same_each_time() -> None:
    first, second = (random_caller(7).call() for _ in range(2))
    assert first.timeline() == second.timeline()
    assert first.steps == second.steps


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_callers(first: int) -> None:
    for seed in range(first, first + 20):
        check(random_caller(seed).call())


@pytest.mark.parametrize("name", SCRIPTS)
def test_hanging_up_in_any_step_leaves_nothing_behind(name: str) -> None:
    """A sample of the steps, not the same for each; ``rejoinder bench simulate --sweep 1`` takes all."""
    first = 1 + list(SCRIPTS).index(name) * 3
    assert sum(1 for _ in hang_ups(SCRIPTS[name], every=41, first=first)) > 8


@pytest.mark.parametrize("name", SCRIPTS)
def test_stopping_the_agent_in_any_step_leaves_the_history_true(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for what the caller had begun to say to be answered; a second more costs as much as a call.
    monkeypatch.setattr(actor, "STOPPED_SECONDS", 1.0)
    first = 2 + list(SCRIPTS).index(name) * 3
    assert sum(1 for _ in interruptions(SCRIPTS[name], every=41, first=first)) > 8


def test_the_sweep_finds_a_history_that_is_not_true(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = History.settle
    monkeypatch.setattr(
        History, "settle", lambda self, turn, heard, cut: settle(self, turn, heard + " and more", cut)
    )
    with pytest.raises(AssertionError, match="is remembered of reply 1"):
        list(hang_ups(SCRIPTS["asks"], every=100))


def test_the_sweep_finds_a_task_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def aclose(self: Session) -> None:
        self.events.close()

    monkeypatch.setattr(Session, "aclose", aclose)
    with pytest.raises(AssertionError, match=r"left (behind|open)"):
        list(hang_ups(SCRIPTS["asks"], every=100))


def test_a_turn_model_that_is_always_sure_cuts_off_a_pausing_caller() -> None:
    pausing = Caller(agent(), turn=ScriptedTurnModel(1.0)).says("what is the weather").pauses(1.0)
    call = pausing.says("in Paris").hears_out().call()
    assert call.turns == ["what is the weather", "in Paris"]


def test_latency_has_the_line_in_it_twice() -> None:
    near, far = (
        Caller(agent(), line=Line(delay=delay)).says("how is it?").hears_out().call().latency_ms[0]
        for delay in (0.0, 0.1)
    )
    assert far - near == 200


def test_over_a_late_line_history_is_what_the_caller_heard() -> None:
    """The agent is behind; the caller's client truncates, as clients of the Realtime protocol do."""
    line = Line(delay=0.3)
    call = Caller(agent(), line=line).says("how is it?").interrupts("no, in London").hears_out().call()
    assert call.history[1] == ("assistant", call.heard[0] + "—")


def test_a_silent_agent_is_reported_with_the_timeline() -> None:
    with pytest.raises(NothingHeard, match=r"(?s)waited 30 s to hear an answer.*caller says: hello"):
        Caller(ScriptedLlm([""])).says("hello").hears_out().call()


def test_floor_at() -> None:
    call = SCRIPTS["interrupts"]().call()
    begun, interrupted = call.talk.when(SpeechStarted)
    assert call.floor_at(0.0) == "nobody" == call.floor_at(call.ended)
    assert call.floor_at(begun) == "user"
    assert call.floor_at(interrupted - 0.1) == "agent?"
    assert call.floor_at(interrupted + 0.001) == "user"


class Threaded:
    """A model that takes real time, in a thread, as those behind sockets do."""

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        for word in "It is real.".split():
            loop, done = asyncio.get_running_loop(), asyncio.Event()
            timer = threading.Timer(0.01, lambda: loop.call_soon_threadsafe(done.set))  # noqa: B023
            timer.start()
            await done.wait()
            timer.join()
            yield word + " "

    async def warm(self, messages: Sequence[Message]) -> None:
        await asyncio.to_thread(lambda: None)


def test_a_model_that_works_in_real_time_takes_the_virtual_time_it_is_given() -> None:
    calls = [Caller(Threaded(), answers_in=0.7).says("how is it?").hears_out().call() for _ in range(2)]
    assert calls[0].timeline() == calls[1].timeline()
    assert calls[0].heard == ["It is real."]
    scripted = Caller(ScriptedLlm(["It is real."], first=0.7, each=0.0)).says("how is it?").hears_out().call()
    assert calls[0].latency_ms == scripted.latency_ms


def test_a_stopped_clock_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_clock, "STANDSTILL_SECONDS", 0.05)
    stuck = ScriptedLlm(["never"], first=1.0)  # it sleeps, and no time passes for it
    with pytest.raises(virtual_clock.Deadlock, match="clock stood still"):
        Caller(stuck, answers_in=0.1).says("hello").hears_out().call()


def test_the_options_are_those_of_the_session() -> None:
    options = Options(instructions="Be brief.", interrupt_response=False)
    call = Caller(agent(), options).says("how is it?").interrupts("and tomorrow?").hears_out().call()
    check(call)
    assert call.prompts[0][0] == {"role": "system", "content": "Be brief."}
    assert call.heard[0].endswith("if you go out.")


def test_the_example_passes_and_stays_small() -> None:
    path = ROOT / "examples" / "test_my_agent.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(path.parent)]
    result = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=6 * PATIENCE)
    assert result.returncode == 0, result.stdout
    assert "4 passed" in result.stdout
    assert len(path.read_text().splitlines()) < 60


def test_the_bench_calls_and_sweeps() -> None:
    from rejoinder.agent.bench import simulate as bench_simulate

    held = bench_simulate.run(calls=4, seed=0, every=0, processes=1)
    assert (held.batch.calls, held.batch.failures) == (4, [])
    assert held.batch.turns > 4 and held.per_minute > 0
    swept = bench_simulate.sweep("types", every=200)
    assert swept.calls >= 4 and not swept.failures


if __name__ == "__main__":
    CALLS.write_text("\n".join(timeline_of(name) for name in SCRIPTS))
