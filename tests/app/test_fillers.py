"""When a filler is said: the rules, without a loop."""

from __future__ import annotations

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.fillers import AGAIN_S, LEAST_S, TOOL_S, Fillers

AFTER = 1.2


def fillers(*words: str) -> Fillers:
    return Fillers(words or ("One moment.", "Let me see."), AFTER)


def test_nothing_is_said_while_nothing_is_owed() -> None:
    assert fillers().due is None


def test_late_answer_has_a_filler_after_the_silence() -> None:
    these = fillers()
    these.turn_ended(10.4, silent_from=10.0)
    assert these.due == 10.0 + AFTER
    assert these.say(10.0 + AFTER - 0.01) == ""
    assert these.say(10.0 + AFTER) == "One moment."


def test_answer_gets_a_moment_after_a_long_wait_for_the_end_of_the_turn() -> None:
    these = fillers()
    these.turn_ended(12.2, silent_from=10.0)
    assert these.due == 12.2 + TOOL_S


def test_answer_in_time_has_none() -> None:
    these = fillers()
    these.turn_ended(10.4, silent_from=10.0)
    these.spoke()
    assert these.due is None


def test_running_tool_has_one_soon() -> None:
    these = fillers()
    these.turn_ended(10.4, silent_from=10.0)
    these.calling(10.5, 10.5)
    assert these.due == pytest.approx(10.5 + TOOL_S)


def test_fast_tool_has_none_before_its_answer_is_late() -> None:
    these = fillers()
    these.turn_ended(10.4, silent_from=10.0)
    these.calling(10.5, 10.0)
    these.returned()
    assert these.due == 10.0 + AFTER


def test_next_one_is_another_and_each_is_said_once_for_an_answer() -> None:
    these = fillers()
    these.turn_ended(10.4, silent_from=10.0)
    these.calling(10.5, 10.5)
    assert these.say(10.8) == "One moment."
    these.audio_until(11.5)
    assert these.due == 11.5 + AGAIN_S
    assert these.say(11.5 + AGAIN_S) == "Let me see."
    assert these.due is None


def test_words_before_a_call_count_as_a_filler() -> None:
    these = fillers()
    these.turn_ended(10.4, silent_from=10.0)
    these.spoke()
    these.calling(11.0, silent_from=12.0)
    assert these.due == 12.0 + AGAIN_S


def test_next_answer_has_one_only_after_a_while_unless_a_tool_runs() -> None:
    these = fillers()
    these.turn_ended(10.4, silent_from=10.0)
    assert these.say(11.2)
    these.spoke()
    these.turn_ended(14.4, silent_from=14.0)
    assert these.due == 11.2 + LEAST_S
    these.calling(14.5, 14.5)
    assert these.due == pytest.approx(14.5 + TOOL_S)
    assert these.say(15.0) == "Let me see.", "they go round"


def test_none_is_said_once_the_caller_speaks() -> None:
    these = fillers()
    these.turn_ended(10.4, silent_from=10.0)
    these.calling(10.5, 10.5)
    these.forget()
    assert these.due is None and these.say(20.0) == ""


def test_noise_during_a_tool_begins_the_wait_anew() -> None:
    these = fillers()
    these.turn_ended(10.4, silent_from=10.0)
    these.calling(10.5, 10.5)
    these.forget()
    these.calling(11.0, 11.0)
    assert these.due == pytest.approx(11.0 + TOOL_S)


def test_request_of_a_client_is_owed_an_answer() -> None:
    these = fillers()
    these.reply_started(5.0)
    assert these.due == pytest.approx(max(5.0 + AFTER, 0.0))


def test_no_fillers_no_filler() -> None:
    these = Fillers((), AFTER)
    these.turn_ended(10.4, silent_from=10.0)
    these.calling(10.5, 10.5)
    assert these.due is None and these.say(20.0) == ""


def test_one_text_is_no_sequence_of_fillers() -> None:
    with pytest.raises(TypeError, match=r"fillers is a text: .* such as \('One moment.',\)"):
        Agent(fillers="One moment.")
