"""Guesses at the end of a turn: what they cost is counted, and there are not more of them than is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from rejoinder.agent.bench.callers import guesses
from rejoinder.agent.bench.callers.guesses import Guesses
from rejoinder.agent.simulate.call import Call
from rejoinder.agent.simulate.caller import Caller
from rejoinder.agent.simulate.calls import random_caller
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import (
    EagerEndOfTurn,
    EndOfTurn,
    ReplyStarted,
    Session,
    Speculation,
    Trace,
    TurnTraced,
)
from rejoinder.pipeline.options import Options

FORECAST = "It is sunny today. Take a hat, if you go out."


def call(pauses: int, seconds: float = 0.6, **options: Any) -> Call:
    caller = Caller(ScriptedLlm([FORECAST]), Options(instructions="", **options)).says("so there")
    for _ in range(pauses):
        caller.pauses(seconds).says("and here")
    return caller.hears_out().call()


def counts(held: Call) -> list[tuple[float, float, float]]:
    told = {event.trace.turn: event.trace.counts for event in held.talk.of(TurnTraced)}.values()
    return [(one["guesses_kept"], one["guesses_dropped"], one["tokens_wasted"]) for one in told]


def test_a_guess_that_becomes_the_answer_costs_nothing() -> None:
    assert counts(call(pauses=0)) == [(1, 0, 0)]


def test_a_guess_that_is_dropped_costs_what_its_model_had_said() -> None:
    held = call(pauses=1)
    assert len(held.prompts) == 2
    ((kept, dropped, wasted),) = counts(held)
    assert (kept, dropped) == (1, 1)
    assert wasted == len(FORECAST.split())  # all of the forecast was there before the user went on
    (sooner,) = counts(call(pauses=1, seconds=0.25))
    assert sooner[:2] == (1, 1) and sooner[2] < wasted


def test_there_are_no_more_guesses_in_a_turn_than_are_allowed() -> None:
    held = call(pauses=4, max_guesses=2)
    assert len(held.prompts) == 3  # two guesses, and the answer when the turn was over
    ((kept, dropped, _),) = counts(held)
    assert (kept, dropped) == (0, 2)
    assert held.heard == [FORECAST]


def test_words_that_want_more_are_not_answered_before_more_is_unlikely() -> None:
    held = Caller(ScriptedLlm([FORECAST]), Options(instructions="")).says("I want a").pauses(0.6).says("hat")
    assert counts(held.hears_out().call()) == [(1, 0, 0)]


def test_each_turn_may_guess_again() -> None:
    caller = Caller(ScriptedLlm([FORECAST]), Options(instructions="", max_guesses=1))
    held = caller.says("so there").hears_out().says("and here").hears_out().call()
    assert counts(held) == [(1, 0, 0), (1, 0, 0)]


def test_a_pause_without_a_guess_is_none() -> None:
    assert counts(call(pauses=1, speculate=False)) == [(0, 0, 0)]


def test_the_session_adds_up() -> None:
    for seed in range(12):
        held = random_caller(seed).call()
        total = held.talk.session.speculation
        replies = {traced.trace.turn: traced.trace for traced in held.talk.of(TurnTraced)}
        went_on = sum("went_on" in trace.counts for trace in replies.values())  # without the language model
        answers = len(held.talk.of(ReplyStarted)) - went_on
        assert total.kept <= answers
        assert len(held.prompts) == total.dropped + answers
        told = [sum(column) for column in zip(*counts(held), strict=True)]
        assert told[0] <= total.kept and told[1] <= total.dropped and told[2] <= total.tokens_wasted


def test_a_reply_reports_the_new_counts_only() -> None:
    speculation = Speculation()
    speculation.drop(3)
    assert speculation.commit(True) == {"guesses_kept": 1, "guesses_dropped": 1, "tokens_wasted": 3}
    assert speculation.commit(False) == {"guesses_kept": 0, "guesses_dropped": 0, "tokens_wasted": 0}


def test_the_wire_sends_the_counts_and_the_bench_adds_them_up() -> None:
    wire = Realtime(Options(), tracing=True)
    wire.handle(ReplyStarted(1))
    trace = Trace(1, "", {"speech_ended": 0.0, "audio_sent": 0.3}, {"guesses_kept": 1, "guesses_dropped": 2})
    trace.counts["tokens_wasted"] = 9
    (event,) = wire.handle(TurnTraced(trace))
    told = guesses.of_replies([event["counts"], event["counts"], {}, {"other": 1}])
    assert told == Guesses(replies=2, kept=2, dropped=4, tokens_wasted=18)
    assert str(told) == "Guesses at an end: 2 of 6 kept (33 %); 9.0 tokens wasted per turn."
    report = guesses.report(told)
    assert report and report["kept_share"] == 1 / 3 and report["tokens_wasted_per_turn"] == 9.0


def test_a_server_that_sends_no_counts_has_no_figure() -> None:
    assert guesses.report(guesses.of_replies([{}])) is None
    assert str(Guesses(replies=3)) == "Guesses at an end: 0 of 0 kept; 0.0 tokens wasted per turn."


@pytest.mark.parametrize(
    ("first", "last", "kept"),
    [("What is C?", "What is C++?", 0), ("Is it 5?", "Is it -5?", 0), ("What is C?", "what is C", 1)],
)
def test_guess_answers_the_words_that_were_said(first: str, last: str, kept: int) -> None:
    """The final transcript may differ from the one at the first pause: another question is asked anew."""

    def ends(session: Session) -> None:
        session._react(EndOfTurn(last, 0))

    talk = Talk(llm=ScriptedLlm(first=1.0))
    talk.does(lambda session: session._react(EagerEndOfTurn(first)), at=0.5)
    talk.does(ends, at=1.0)
    talk.run(6.0)
    assert [one[-1]["content"] for one in talk.llm.prompts] == ([first] if kept else [first, last])
    assert talk.done() == [(2 - kept, "completed", f"You said: {first if kept else last}")]
