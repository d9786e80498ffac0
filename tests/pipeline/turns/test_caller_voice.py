"""Only the caller's voice takes the floor: levels of windows in, speech probabilities out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rejoinder.agent.simulate.scenario import LOUDEST, SCENARIO_ENDPOINTING, SOFT, Talk
from rejoinder.models.scripted import WINDOW
from rejoinder.pipeline import EndOfTurn, Endpointing, OverlapStarted, ReplyDone, SpeechStarted
from rejoinder.pipeline.options import Speakers
from rejoinder.pipeline.turns.caller_voice import (
    AFTER_SAMPLES,
    BEFORE_SAMPLES,
    FORGET_SAMPLES,
    LEAST_LEVEL_WINDOWS,
    LONGEST_SAMPLES,
    MARGIN_DB,
    WAIT_SAMPLES,
    CallerVoice,
    Window,
)

STORY = " ".join(f"On day {day} the ship sailed on to an island." for day in ("one", "two", "three", "four"))


class Line:
    """A line on which windows of one level follow one another."""

    def __init__(self, dbfs: float = -24.0) -> None:
        self.caller = CallerVoice()
        self.end = 0
        self.turn(dbfs)

    def says(self, dbfs: float, count: int, probability: float = 0.9, agent: bool = False) -> list[bool]:
        """Judge windows of one level; return whether each of the decided ones has the caller's voice."""
        decided = []
        for _ in range(count):
            self.end += WINDOW
            decided += self.caller.judge(Window(self.end, probability, 10 ** (dbfs / 10)), agent)
        return [window.probability > 0.0 for window in decided]

    def rests(self, samples: int) -> None:
        """Be silent."""
        for _ in range(samples // WINDOW + 1):
            self.end += WINDOW
            self.caller.judge(Window(self.end, 0.0, 1e-7), False)

    def turn(self, dbfs: float) -> None:
        """Say a turn that is answered."""
        self.caller.turn_began()
        assert all(self.says(dbfs, 30))
        self.caller.turn_answered()
        self.rests(AFTER_SAMPLES)


def test_every_voice_counts_before_the_first_turn() -> None:
    caller = CallerVoice()
    window = Window(WINDOW, 0.9, 1e-6)
    assert caller.judge(window, agent_speaks=False) == [window]
    assert caller.level is None


def test_the_level_is_that_of_the_turns() -> None:
    line = Line(-24.0)
    assert line.caller.level == pytest.approx(-24.0, abs=0.1)
    line.turn(-20.0)
    assert line.caller.level == pytest.approx(-22.0, abs=0.1)


@pytest.mark.parametrize("over_agent", [True, False])
def test_a_voice_far_below_the_caller_is_background(over_agent: bool) -> None:
    line = Line()
    assert not any(line.says(-24.0 - MARGIN_DB - 1, 100, agent=over_agent))
    line = Line()
    assert all(line.says(-24.0 - MARGIN_DB + 1, 100, agent=over_agent))


def test_a_soft_onset_counts_once_a_loud_syllable_follows() -> None:
    line = Line()
    soft = BEFORE_SAMPLES // WINDOW - 1
    assert line.says(-40.0, soft) == []
    assert line.caller.undecided
    assert line.says(-20.0, 1) == [True] * (soft + 1)
    assert not line.caller.undecided


def test_a_weak_syllable_counts_after_a_loud_one() -> None:
    line = Line()
    line.says(-20.0, 5)
    weak = line.says(-40.0, AFTER_SAMPLES // WINDOW + BEFORE_SAMPLES // WINDOW + 10)
    assert sum(weak) in range(AFTER_SAMPLES // WINDOW, AFTER_SAMPLES // WINDOW + 5)
    assert weak == sorted(weak, reverse=True)


def test_the_decision_takes_no_longer_than_a_soft_onset() -> None:
    line = Line()
    before = line.end
    decided = sum(len(line.says(-50.0, 1)) for _ in range(50))
    assert line.end - before - decided * WINDOW == (BEFORE_SAMPLES // WINDOW + 1) * WINDOW


def test_silence_is_passed_on_at_once() -> None:
    line = Line()
    assert line.says(-60.0, 3, probability=0.1) == [True] * 3
    assert not line.caller.undecided


def test_the_second_attempt_of_a_quiet_caller_counts() -> None:
    line = Line()
    assert not any(line.says(-45.0, 30))
    line.rests(WAIT_SAMPLES)
    line.caller.turn_began()
    assert all(line.says(-45.0, 30))
    line.caller.turn_answered()
    assert line.caller.level == pytest.approx(-45.0, abs=0.1)  # so the third one counts at once
    line.rests(WAIT_SAMPLES)
    assert all(line.says(-45.0, 30))


def test_an_attempt_over_the_agent_is_none() -> None:
    line = Line()
    line.says(-45.0, 30, agent=True)
    line.rests(WAIT_SAMPLES)
    assert not any(line.says(-45.0, 30))


@pytest.mark.parametrize(
    ("wait", "first"), [(WAIT_SAMPLES // 2, 30), (FORGET_SAMPLES, 30), (WAIT_SAMPLES, 5)]
)
def test_another_voice_is_no_second_attempt(wait: int, first: int) -> None:
    """The caller did not wait for an answer, has forgotten the question, or said no more than a syllable."""
    line = Line()
    line.says(-45.0, first)
    line.rests(wait)
    assert not any(line.says(-45.0, 30))


def test_short_words_of_a_quiet_caller_add_up_to_an_attempt() -> None:
    line, yes = Line(), 8
    for _ in range(2):
        assert not any(line.says(-45.0, yes))
        line.rests(WAIT_SAMPLES)
    assert all(line.says(-45.0, yes))


def test_a_short_second_attempt_does_not_shut_the_caller_out_again() -> None:
    """Its few windows set no level, and the old one is too high."""
    line = Line()
    line.says(-45.0, 30)
    line.rests(WAIT_SAMPLES)
    line.caller.turn_began()
    line.says(-45.0, LEAST_LEVEL_WINDOWS - 1)
    line.caller.turn_answered()
    line.rests(WAIT_SAMPLES // 2)
    assert all(line.says(-45.0, 30))


def test_a_television_that_talks_through_a_prompt_did_not_wait() -> None:
    line = Line()
    line.says(-45.0, 30)
    line.says(-45.0, WAIT_SAMPLES // WINDOW + 10, agent=True)
    assert not any(line.says(-45.0, 30))


def test_a_voice_that_nobody_answers_counts_in_the_end() -> None:
    line = Line()
    assert not any(line.says(-45.0, LONGEST_SAMPLES // WINDOW - 1))
    assert all(line.says(-45.0, 30))


def test_every_voice_counts_where_people_share_a_telephone() -> None:
    line = Line()
    line.caller.configure(is_only=False)
    assert all(line.says(-50.0, 30))
    line.caller.configure(is_only=True)
    assert not any(line.says(-50.0, 60)[AFTER_SAMPLES // WINDOW :])


def test_speakers_has_two_values() -> None:
    with pytest.raises(ValueError, match='speakers is \'two\': it must be "one" or "many"'):
        Endpointing(speakers="two")  # type: ignore[arg-type]


def test_every_voice_counts_once_the_level_is_forgotten() -> None:
    line = Line()
    line.caller.forget()
    assert all(line.says(-50.0, 30))


# --- in a session -----------------------------------------------------------------------------------------


def asked(speakers: Speakers, *lines: str) -> Talk:
    """Return a conversation in which the caller asks a question, and the agent tells a story."""
    talk = Talk(
        "tell me a story",
        *lines,
        replies=(STORY, "Fine."),
        endpointing=replace(SCENARIO_ENDPOINTING, speakers=speakers),
    )
    talk.says(1.0, at=0.2, sound=LOUDEST)
    return talk


def test_a_voice_in_the_background_does_not_stop_the_agent() -> None:
    talk = asked("one", "see you at noon")
    talk.says(2.0, at=3.0, sound=SOFT)
    talk.run(until=40.0)
    assert [done.heard for done in talk.of(ReplyDone)] == [STORY]
    assert talk.of(OverlapStarted) == []
    assert len(talk.of(SpeechStarted)) == len(talk.of(EndOfTurn)) == 1


def test_it_stops_the_agent_where_every_voice_counts() -> None:
    talk = asked("many", "see you at noon")
    talk.says(2.0, at=3.0, sound=SOFT)
    talk.run(until=40.0)
    assert len(talk.of(EndOfTurn)) == 2


def test_a_voice_in_the_background_does_not_keep_the_floor() -> None:
    ends = []
    for speakers in ("one", "many"):
        talk = asked(speakers, "where are you")
        talk.says(1.0, at=20.0, sound=LOUDEST)
        talk.says(5.0, at=21.0, sound=SOFT)
        talk.run(until=40.0)
        ends.append([at for at, event in talk.log if isinstance(event, EndOfTurn)][1])
    assert ends[0] < 22.5
    assert ends[1] > 26.0


def test_the_caller_still_stops_the_agent() -> None:
    talk = asked("one", "never mind")
    talk.says(1.0, at=3.0, sound=LOUDEST)
    talk.run(until=40.0)
    assert [turn.text for turn in talk.of(EndOfTurn)] == ["tell me a story", "never mind"]


def test_a_caller_who_gets_quieter_is_heard_the_second_time() -> None:
    talk = asked("one", "where are you", "thank you")
    talk.says(1.0, at=20.0, sound=SOFT)
    talk.says(1.0, at=24.0, sound=SOFT)
    talk.says(1.0, at=32.0, sound=SOFT)
    talk.run(until=50.0)
    assert [turn.text for turn in talk.of(EndOfTurn)] == ["tell me a story", "where are you", "thank you"]


def test_a_client_that_returns_may_have_another_microphone() -> None:
    talk = asked("one", "where are you")
    talk.does(lambda session: session.hold(19.0) and None, at=19.0)
    talk.does(lambda session: session.release(), at=19.5)
    talk.says(1.0, at=20.0, sound=SOFT)
    talk.run(until=40.0)
    assert [turn.text for turn in talk.of(EndOfTurn)] == ["tell me a story", "where are you"]
