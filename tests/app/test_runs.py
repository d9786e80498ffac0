"""When results enter the history, and when the agent speaks about them."""

from __future__ import annotations

from rejoinder.agent.app.runs import CANCELLED, SLOW_S, CancelRun, InsertResult, TellResults, ToolRuns


def called(*ids: str, background: bool = False, keep_on_interrupt: bool = False) -> ToolRuns:
    """Return runs that one reply has started at time 0; the reply has ended."""
    runs = ToolRuns()
    runs.reply_started()
    for id_ in ids:
        assert runs.called(id_, 1, 0.0, background, keep_on_interrupt)
    runs.reply_done()
    return runs


def test_fast_result_is_told_at_once() -> None:
    assert called("a").returned("a", "yes") == [InsertResult("a", "yes"), TellResults()]


def test_results_of_one_reply_are_told_together() -> None:
    runs = called("a", "b")
    assert runs.returned("b", "2") == [InsertResult("b", "2")]
    assert runs.returned("a", "1") == [InsertResult("a", "1"), TellResults()]


def test_result_waits_for_the_end_of_the_reply_that_asked() -> None:
    runs = ToolRuns()
    runs.reply_started()
    runs.called("a", 1, 0.0, background=False, keep_on_interrupt=False)
    assert runs.returned("a", "yes") == [InsertResult("a", "yes")]
    assert runs.reply_done() == [TellResults()]


def test_call_id_runs_once() -> None:
    runs = called("a")
    assert not runs.called("a", 2, 1.0, background=False, keep_on_interrupt=False)
    runs.returned("a", "yes")
    assert not runs.called("a", 3, 2.0, background=False, keep_on_interrupt=False)
    assert runs.returned("a", "again") == []


def test_result_is_never_spoken_over_the_caller() -> None:
    runs = called("a", keep_on_interrupt=True)
    runs.user_started()
    assert runs.returned("a", "yes") == [InsertResult("a", "yes")]
    assert runs.user_done(words=True) == [], "the reply to the caller's words tells it"
    runs.reply_started()
    assert runs.reply_done() == [], "told once"


def test_noise_cancels_nothing_and_result_is_told_after_it() -> None:
    runs = called("a")
    runs.user_started()
    assert runs.returned("a", "yes") == [InsertResult("a", "yes")]
    assert runs.user_done(words=False) == [TellResults()]


def test_words_of_the_caller_cancel_what_is_safe_to_cancel() -> None:
    runs = called("a")
    runs.user_started()
    assert runs.user_words() == [CancelRun("a"), InsertResult("a", CANCELLED)]
    assert runs.returned("a", "too late") == [] and runs.running == set()
    assert runs.user_words() == []


def test_keep_on_interrupt_run_goes_on_and_its_result_is_told_later() -> None:
    runs = called("a", keep_on_interrupt=True)
    runs.user_started()
    assert runs.user_words() == [] and runs.running == {"a"}
    runs.user_done(words=True)
    runs.reply_started()
    assert runs.returned("a", "booked") == [InsertResult("a", "booked")]
    assert runs.reply_done() == [TellResults()]


def test_background_run_lets_the_agent_talk_on() -> None:
    runs = ToolRuns()
    runs.reply_started()
    runs.called("a", 1, 0.0, background=True, keep_on_interrupt=False)
    assert runs.reply_done() == [TellResults()], "the agent says that it has begun"
    runs.reply_started()
    runs.reply_done()
    runs.user_started()
    assert runs.user_words() == [], "talking does not cancel it"
    runs.user_done(words=True)
    runs.reply_started()
    runs.reply_done()
    assert runs.returned("a", "found") == [InsertResult("a", "found"), TellResults()]


def test_conversation_stops_waiting_for_a_slow_run() -> None:
    runs = called("a", "b")
    runs.returned("b", "2")
    assert runs.due == SLOW_S and runs.passed(SLOW_S - 0.1) == []
    assert runs.passed(SLOW_S) == [TellResults()] and runs.due is None
    runs.reply_started()
    runs.reply_done()
    assert runs.returned("a", "1") == [InsertResult("a", "1"), TellResults()]


def test_cancelled_run_is_told_even_if_the_turn_comes_to_nothing() -> None:
    runs = called("a")
    runs.user_started()
    runs.user_words()
    assert runs.user_done(words=False) == [TellResults()]
