"""The floor as tables: what is heard, and what follows from it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rejoinder.agent.simulate.scenario import SCENARIO_ENDPOINTING
from rejoinder.models.scripted import WINDOW, ScriptedVad
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk
from rejoinder.pipeline.events import (
    BackchannelEnded,
    EagerEndOfTurn,
    EndOfTurn,
    FloorEvent,
    NothingSaid,
    OverlapEnded,
    OverlapStarted,
    PauseStarted,
    SpeechStarted,
    Transcribed,
    TurnResumed,
)
from rejoinder.pipeline.interfaces import Transcript
from rejoinder.pipeline.options import Endpointing, Options
from rejoinder.pipeline.turns.caller_voice import Window
from rejoinder.pipeline.turns.endpointer import Endpointer
from rejoinder.pipeline.turns.floor import Floor
from rejoinder.pipeline.turns.patience import CUT_OFF_UNSURE_MS
from rejoinder.pipeline.turns.pause import EAGER_MS


def windows(count: int) -> int:
    """Return the sample at which a window of 32 ms ends."""
    return count * WINDOW


def play(floor: Endpointer, script: str) -> list[FloorEvent]:
    """Run a script and collect what the floor answers.

    v3: three windows of speech; q3: three of quiet; h3: three in between the two thresholds
    final=TEXT, partial=TEXT: a transcript up to now; final=TEXT|OTHER: and what it may be as well
    late=TEXT: a final one that ends before the pause
    hushed=TEXT: a transcript up to now, where the level has fallen
    judged=P: the turn model's answer about the pause; stale=P: about an earlier one
    dismiss: the session gives up waiting; ends: the agent is at its last words
    end, abandon: what the client may say; done: the agent has finished
    """
    events: list[FloorEvent] = []
    for word in script.split():
        name, _, value = word.partition("=")
        text = value.replace("_", " ")
        match name:
            case "final" | "partial":
                text, *others = text.split("|")
                events += floor.transcript(Transcript(text, name == "final", floor.now, tuple(others)))
            case "hushed":
                events += floor.transcript(Transcript(text, False, floor.now), voice_ended=True)
            case "late":
                assert floor.pause is not None
                events += floor.transcript(Transcript(text, True, floor.pause - 1))
            case "judged":
                assert floor.pause is not None
                events += floor.turn_model_answered(floor.pause, float(value))
            case "stale":
                events += floor.turn_model_answered(windows(1), float(value))
            case "end":
                events += floor.end_turn(floor.now)
            case "abandon":
                events += floor.abandon_turn(floor.now)
            case "dismiss":
                events += floor.dismiss_overlap()
            case "ends":
                floor.agent.finishing()
            case "done":
                floor.agent.finished()
            case "speaks":
                floor.agent.started()
            case _:
                probability = {"v": 1.0, "h": 0.4, "q": 0.0}[name[0]]
                for _ in range(int(name[1:])):
                    events += floor.vad(floor.now + WINDOW, probability)
    return events


def known(text: str) -> tuple[FloorEvent, ...]:
    """Return the events for words that may be the end."""
    return Transcribed(text), EagerEndOfTurn(text)


STARTED, PAUSED = SpeechStarted(0), PauseStarted(windows(10))
END, END_STOP = EndOfTurn("hi", windows(10)), EndOfTurn("hi.", windows(10))
OVERLAP, NOTHING = OverlapStarted(windows(10)), OverlapEnded("")
SO_FAR, RIGHT_SO_FAR = OverlapEnded("", is_over=False), OverlapEnded("Right.", is_over=False)
TAKEN = SpeechStarted(windows(10))


def taken_and_ended(words: str) -> list[FloorEvent]:
    """The events of a whole turn of eight windows over the agent."""
    ended = EndOfTurn(words, windows(18))
    return [OVERLAP, TAKEN, PauseStarted(windows(18)), *known(words), ended]


TABLE: dict[str, tuple[str, list[FloorEvent], Floor]] = {
    "quiet": ("q50", [], Floor.NOBODY),
    "speech takes the floor": ("q10 v3", [SpeechStarted(windows(10))], Floor.USER),
    "too little speech does not": ("q10 v2 q9 v2 q9", [], Floor.NOBODY),
    "nor does half-loud sound": ("h50", [], Floor.NOBODY),
    "half-loud sound keeps the floor": ("v3 h50", [STARTED], Floor.USER),
    "a blink is no pause": ("v10 q1 v5 q1 v5", [STARTED], Floor.USER),
    "silence starts a pause": ("v10 q2", [STARTED, PAUSED], Floor.PAUSE),
    "a partial transcript decides nothing": ("v10 q2 partial=hi q50", [STARTED, PAUSED], Floor.PAUSE),
    "words may be the end": ("v10 q2 final=hi", [STARTED, PAUSED, *known("hi")], Floor.PAUSE),
    "no words may yet become some": ("v10 q2 final= q25", [STARTED, PAUSED], Floor.PAUSE),
    "no words for long are nothing": (
        "v10 q2 final= q26",
        [STARTED, PAUSED, NothingSaid(windows(10))],
        Floor.NOBODY,
    ),
    "words may come after a hesitation": (
        "v10 q2 final= v2 q2 final=hi",
        [STARTED, PAUSED, TurnResumed(), PauseStarted(windows(14)), *known("hi")],
        Floor.PAUSE,
    ),
    "speech resumes the turn": (
        "v10 q2 final=hi v2",
        [STARTED, PAUSED, *known("hi"), TurnResumed()],
        Floor.USER,
    ),
    "a click does not": ("v10 q2 final=hi v1 q3", [STARTED, PAUSED, *known("hi")], Floor.PAUSE),
    "a click does not end the wait early": (
        "v10 q2 final=hi judged=1 q7 v1",
        [STARTED, PAUSED, *known("hi")],
        Floor.PAUSE,
    ),
    "the second pause has its own words": (
        "v10 q2 final=hi v2 q2 final=hi_there",
        [STARTED, PAUSED, *known("hi"), TurnResumed(), PauseStarted(windows(14)), *known("hi there")],
        Floor.PAUSE,
    ),
    "sure: the short wait": (
        "v10 q2 final=hi judged=1 q8",
        [STARTED, PAUSED, *known("hi"), END],
        Floor.AGENT,
    ),
    "sure: not before it": ("v10 q2 final=hi judged=1 q7", [STARTED, PAUSED, *known("hi")], Floor.PAUSE),
    "half sure: longer": (
        "v10 q2 final=hi judged=0.8 q20",
        [STARTED, PAUSED, *known("hi"), END],
        Floor.AGENT,
    ),
    "half sure: not at once": ("v10 q2 final=hi judged=0.7 q8", [STARTED, PAUSED, *known("hi")], Floor.PAUSE),
    "a full stop makes surer": (
        "v10 q2 final=hi. judged=0.8 q8",
        [STARTED, PAUSED, *known("hi."), END_STOP],
        Floor.AGENT,
    ),
    "doubt stays": ("v10 q2 final=hi judged=0 judged=0.8 q20", [STARTED, PAUSED, *known("hi")], Floor.PAUSE),
    "unsure: the long wait": (
        "v10 q2 final=hi judged=0 q26",
        [STARTED, PAUSED, *known("hi"), END],
        Floor.AGENT,
    ),
    "unsure: not before it": ("v10 q2 final=hi judged=0 q25", [STARTED, PAUSED, *known("hi")], Floor.PAUSE),
    "not asked: the long wait": ("v10 q2 final=hi q26", [STARTED, PAUSED, *known("hi"), END], Floor.AGENT),
    "not asked: not before it": ("v10 q2 final=hi q25", [STARTED, PAUSED, *known("hi")], Floor.PAUSE),
    "a judgement may come last": (
        "v10 q12 final=hi judged=1",
        [STARTED, PAUSED, *known("hi"), END],
        Floor.AGENT,
    ),
    "the transcript may come last": (
        "v10 q2 judged=1 q9 final=hi",
        [STARTED, PAUSED, *known("hi"), END],
        Floor.AGENT,
    ),
    "without transcript no end": ("v10 q2 judged=1 q99", [STARTED, PAUSED], Floor.PAUSE),
    "a transcript that ends before the pause is ignored": (
        "v10 q2 late=hi q50",
        [STARTED, PAUSED],
        Floor.PAUSE,
    ),
    "a transcript after the turn is ignored": (
        "v10 q2 final=hi q26 final=again",
        [STARTED, PAUSED, *known("hi"), END],
        Floor.AGENT,
    ),
    "a transcript of a pause that ended is ignored": (
        "v10 q2 v2 final=hi",
        [STARTED, PAUSED, TurnResumed()],
        Floor.USER,
    ),
    "a judgement of another pause is ignored": (
        "v10 q2 final=hi stale=1 q12",
        [STARTED, PAUSED, *known("hi")],
        Floor.PAUSE,
    ),
    "resuming forgets the judgement": (
        "v10 q2 final=hi judged=1 v2 q2 final=hi q12",
        [STARTED, PAUSED, *known("hi"), TurnResumed(), PauseStarted(windows(14)), *known("hi")],
        Floor.PAUSE,
    ),
    "speech over the agent is noticed": (
        "v10 q2 final=hi judged=1 q8 v2",
        [STARTED, PAUSED, *known("hi"), END, OverlapStarted(windows(20))],
        Floor.OVERLAP,
    ),
    "a click over the agent is not": ("speaks q10 v1 q9 v1 q9", [], Floor.AGENT),
    "half-loud sound over the agent is not": ("speaks h50", [], Floor.AGENT),
    "what is too short for a word lets the agent go on": (
        "speaks q10 v2 q3",
        [OVERLAP, NOTHING],
        Floor.AGENT,
    ),
    "but not at once": ("speaks q10 v2 q2", [OVERLAP], Floor.OVERLAP),
    "a cough has no words": ("speaks q10 v8 q2 final=", [OVERLAP, NOTHING], Floor.AGENT),
    "or is told as such": (
        "speaks q10 v8 q2 final=(coughs)",
        [OVERLAP, OverlapEnded("(coughs)")],
        Floor.AGENT,
    ),
    "a backchannel is over when its level has fallen": (
        "speaks q10 v8 hushed=Mm-hmm. v4 q1 v1",
        [OVERLAP, OverlapEnded("Mm-hmm.")],
        Floor.AGENT,
    ),
    "who goes on speaking behind it is heard": (
        "speaks q10 v8 hushed=Okay. v5",
        [OVERLAP, OverlapEnded("Okay."), OverlapStarted(windows(21))],
        Floor.OVERLAP,
    ),
    "other words are not over for that": ("speaks q10 v8 hushed=Okay_but", [OVERLAP], Floor.OVERLAP),
    "nor is a cough, but the agent speaks on": (
        "speaks q10 v8 hushed=",
        [OVERLAP, SO_FAR],
        Floor.OVERLAP,
    ),
    "the agent speaks on under what sounds like a backchannel": (
        "speaks q10 v8 partial=Rate.|Right.",
        [OVERLAP, RIGHT_SO_FAR],
        Floor.OVERLAP,
    ),
    "its end is another event": (
        "speaks q10 v8 partial=Right. v4 q2 final=Right.",
        [OVERLAP, RIGHT_SO_FAR, BackchannelEnded("Right.")],
        Floor.AGENT,
    ),
    "the agent waits again once there are other words": (
        "speaks q10 v8 partial=Right. v4 partial=Right_but",
        [OVERLAP, RIGHT_SO_FAR, OVERLAP],
        Floor.OVERLAP,
    ),
    "it waits for the rest of a fragment": (
        "speaks q10 v8 partial= q2 final=If_I",
        [OVERLAP, SO_FAR, OVERLAP],
        Floor.OVERLAP,
    ),
    "and speaks on if there is none": (
        "speaks q10 v8 partial= q2 final=If_I q20",
        [OVERLAP, SO_FAR, OVERLAP, OverlapEnded("If I")],
        Floor.AGENT,
    ),
    "and stops for them": (
        "speaks q10 v8 partial=Right. v4 q2 final=stop",
        [OVERLAP, RIGHT_SO_FAR, TAKEN, PauseStarted(windows(22)), *known("stop")],
        Floor.PAUSE,
    ),
    "it waits where the words may be an answer": (
        "speaks q10 v8 ends partial=Right.",
        [OVERLAP],
        Floor.OVERLAP,
    ),
    "nor what may be an answer": ("speaks q10 v8 ends hushed=Okay.", [OVERLAP], Floor.OVERLAP),
    "what may be a backchannel": (
        "speaks q10 v8 q2 final=Rate.|Right.",
        [OVERLAP, OverlapEnded("Right.")],
        Floor.AGENT,
    ),
    "a turn has the likeliest words all the same": (
        "speaks q10 v8 q2 v1 final=Rate.|Right. end",
        taken_and_ended("Rate."),
        Floor.AGENT,
    ),
    "but not where it may be an answer": (
        "speaks q10 v8 ends q2 final=yet|yeah",
        [OVERLAP, TAKEN, PauseStarted(windows(18)), *known("yet")],
        Floor.PAUSE,
    ),
    "a backchannel": ("speaks q10 v8 q2 final=Mm-hmm.", [OVERLAP, OverlapEnded("Mm-hmm.")], Floor.AGENT),
    "over the agent's last words it is an answer": (
        "speaks q10 v8 ends q2 final=Yeah.",
        [OVERLAP, TAKEN, PauseStarted(windows(18)), *known("Yeah.")],
        Floor.PAUSE,
    ),
    "a cough is not even then": ("speaks q10 v8 ends q2 final=", [OVERLAP, NOTHING], Floor.AGENT),
    "undecided without a transcript": ("speaks q10 v8 q30", [OVERLAP], Floor.OVERLAP),
    "words are an interruption": (
        "speaks q10 v8 q2 final=stop",
        [OVERLAP, TAKEN, PauseStarted(windows(18)), *known("stop")],
        Floor.PAUSE,
    ),
    "it ends like any turn": (
        "speaks q10 v8 q2 final=stop judged=1 q8",
        taken_and_ended("stop"),
        Floor.AGENT,
    ),
    "a transcript after much silence ends it at once": (
        "speaks q10 v8 q40 final=stop",
        taken_and_ended("stop"),
        Floor.AGENT,
    ),
    "a partial transcript of words does not decide": ("speaks q10 v8 partial=stop", [OVERLAP], Floor.OVERLAP),
    "nor one from before": ("speaks q10 v8 q2 late=stop", [OVERLAP], Floor.OVERLAP),
    "a voice that goes on is an interruption": ("speaks q10 v25", [OVERLAP, TAKEN], Floor.USER),
    "not before": ("speaks q10 v24", [OVERLAP], Floor.OVERLAP),
    "a long cough has more time": ("speaks q10 v10 partial= v39", [OVERLAP, SO_FAR], Floor.OVERLAP),
    "but not for ever": ("speaks q10 v10 partial= v40", [OVERLAP, SO_FAR, TAKEN], Floor.USER),
    "a pause does not end it": ("speaks q10 v8 q2 v4", [OVERLAP], Floor.OVERLAP),
    "nor does its transcript come too late": ("speaks q10 v8 q2 v4 final=stop", [OVERLAP], Floor.OVERLAP),
    "while sound comes back nothing is decided": ("speaks q10 v8 q2 v1 final=", [OVERLAP], Floor.OVERLAP),
    "coughs add up": ("speaks q10 v8 q2 v8 q2 v9", [OVERLAP, TAKEN], Floor.USER),
    "after a backchannel the next one is as good": (
        "speaks q10 v8 q2 final=yeah q10 v8 q2 final=right",
        [OVERLAP, OverlapEnded("yeah"), OverlapStarted(windows(30)), OverlapEnded("right")],
        Floor.AGENT,
    ),
    "the agent goes on if nothing comes": ("speaks q10 v8 dismiss", [OVERLAP, NOTHING], Floor.AGENT),
    "dismissing what is not there": ("v8 dismiss", [STARTED], Floor.USER),
    "the agent is stopped while spoken over: a cough": (
        "speaks q10 v8 done q2 final=",
        [OVERLAP, NOTHING],
        Floor.NOBODY,
    ),
    "the agent is stopped while spoken over: any word is a turn": (
        "speaks q10 v8 done q2 final=okay",
        [OVERLAP, TAKEN, PauseStarted(windows(18)), *known("okay")],
        Floor.PAUSE,
    ),
    "it begins again while spoken over": (
        "speaks q10 v8 done speaks q2 final=",
        [OVERLAP, NOTHING],
        Floor.AGENT,
    ),
    "forced over the agent": (
        "speaks q10 v8 end final=okay",
        taken_and_ended("okay"),
        Floor.AGENT,
    ),
    "forced over the agent, in a pause": (
        "speaks q10 v8 q2 end final=okay",
        taken_and_ended("okay"),
        Floor.AGENT,
    ),
    "abandoned over the agent": ("speaks q10 v8 abandon q9", [OVERLAP, NOTHING], Floor.AGENT),
    "the agent finishes": (
        "v10 q2 final=hi judged=1 q8 done",
        [STARTED, PAUSED, *known("hi"), END],
        Floor.NOBODY,
    ),
    "an agent that finishes does not take the user's floor": ("v3 done", [STARTED], Floor.USER),
    "the agent speaks unasked": ("speaks", [], Floor.AGENT),
    "but not into the user's turn": ("v3 speaks", [STARTED], Floor.USER),
    "forced: talking ends now": (
        "v10 end final=hi",
        [STARTED, PauseStarted(windows(10)), *known("hi"), END],
        Floor.AGENT,
    ),
    "forced: speech does not resume": ("v10 end v9", [STARTED, PauseStarted(windows(10))], Floor.PAUSE),
    "forced in a pause": ("v10 q2 final=hi end", [STARTED, PAUSED, *known("hi"), END], Floor.AGENT),
    "forced before the transcript": (
        "v10 q2 end final=hi",
        [STARTED, PAUSED, *known("hi"), END],
        Floor.AGENT,
    ),
    "forced without words": ("v10 end final=", [STARTED, PAUSED, NothingSaid(windows(10))], Floor.NOBODY),
    "forced when nobody speaks": ("q10 end q10", [], Floor.NOBODY),
    "forcing one turn does not force the next": (
        "v10 end final=hi q4 v10 q2 final=hi",
        [
            *(STARTED, PAUSED, *known("hi"), END, OverlapStarted(windows(14))),
            *(SpeechStarted(windows(14)), PauseStarted(windows(24)), *known("hi")),
        ],
        Floor.PAUSE,
    ),
    "abandoned while talking": ("v10 abandon", [STARTED], Floor.NOBODY),
    "abandoned in a pause": ("v10 q2 abandon final=hi q50", [STARTED, PAUSED], Floor.NOBODY),
    "abandoned before it was noticed": ("v2 abandon v2 q9", [], Floor.NOBODY),
    "abandoning leaves the agent alone": ("speaks abandon", [], Floor.AGENT),
}


@pytest.mark.parametrize(("script", "events", "floor"), TABLE.values(), ids=TABLE)
def test_the_table(script: str, events: list[FloorEvent], floor: Floor) -> None:
    endpointer = Endpointer(SCENARIO_ENDPOINTING)
    assert play(endpointer, script) == events
    assert endpointer.floor is floor


def test_a_turn_that_is_too_long_ends_and_the_next_begins_where_it_ended() -> None:
    floor = Endpointer(Endpointing(max_turn_ms=960))
    assert play(floor, "v30") == [SpeechStarted(0), PauseStarted(windows(30))]
    assert play(floor, "v5 final=too_long") == [
        *known("too long"),
        EndOfTurn("too long", windows(30)),
    ]
    assert play(floor, "v25") == [OverlapStarted(windows(35)), SpeechStarted(windows(35))]
    assert floor.turn_start == windows(30)  # nothing is lost, and nothing is said twice


def test_the_turn_begins_before_its_first_loud_sample() -> None:
    floor, starts = Endpointer(Endpointing(padding_ms=320)), []
    for script in ("q20 v3", "abandon", "v3"):
        play(floor, script)
        starts.append(floor.turn_start)
    assert starts == [windows(10), None, windows(23)]  # not before what was abandoned


def test_equal_waits_are_plain_silence_detection() -> None:
    floor = Endpointer(Endpointing(pause_ms=320, min_wait_ms=320, max_wait_ms=320))
    assert play(floor, "v10 q9") == [STARTED]
    assert play(floor, "q1 final=hi") == [PAUSED, *known("hi"), END]


@pytest.mark.parametrize(
    "wrong",
    [
        {"patience": 0.0},
        {"threshold": 1.2},
        {"release": 1.1},
        {"min_wait_ms": 10},
        {"max_wait_ms": 100},
        {"assertiveness": 2.0},
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Endpointing(**wrong)  # type: ignore[arg-type]


def wait(words: str, patience: float = 5.0, asked: str = "") -> float:
    """Return the silence in ms after which the floor lets a turn end."""
    floor = Endpointer(Endpointing(patience=patience))
    floor.agent.was_heard(asked)
    play(floor, f"v10 q2 {words}")
    return (2 + until_over(floor)) * 32.0


def until_over(floor: Endpointer) -> int:
    """Be silent until the turn ends, and return for how many windows."""
    begun = floor.now
    while floor.floor is Floor.PAUSE:
        play(floor, "q1")
    return (floor.now - begun) // WINDOW


def test_patience_makes_every_wait_longer() -> None:
    waits = [wait("judged=0.9 final=that_is_all", patience) for patience in (1.0, 10.0, 50.0)]
    assert waits == sorted(waits) and len(set(waits)) == 3
    assert wait("judged=1 final=that_is_all.") == 160.0  # the first window after min_wait_ms


@pytest.mark.parametrize(
    "between, longer", [("q3", True), ("q40", False), ("q3 done q10 speaks q30", False)], ids=str
)
def test_patience_grows_after_a_cut_off(between: str, longer: bool) -> None:
    floor = Endpointer(Endpointing(patience=1.0))
    waits = []
    for _ in range(4):
        play(floor, "v10 partial=and_there_is_more q2 judged=0.7 final=and_there_is_more")
        waits.append(until_over(floor))
        play(floor, between)
    assert waits == sorted(waits)
    assert (waits[0] < waits[1] <= waits[2] == waits[3]) is longer
    assert max(waits) * 32.0 <= CUT_OFF_UNSURE_MS, "no longer than their own pauses last"
    assert longer or waits[0] == waits[3]


def test_extra_patience_resets_after_uninterrupted_replies() -> None:
    floor = Endpointer(Endpointing(patience=1.0))
    waits = []
    for between in ["q3", *["q40"] * 6]:
        play(floor, "v10 partial=and_there_is_more q2 judged=0.7 final=and_there_is_more")
        waits.append(until_over(floor))
        play(floor, between)
    assert waits == [waits[0], *[waits[1]] * 4, waits[0], waits[0]] and waits[1] > waits[0]


def test_a_client_that_commits_its_turn_is_not_cut_off() -> None:
    floor = Endpointer(Endpointing(patience=1.0))
    play(floor, "v10 q2 final=hi end q2 v10 partial=and_there_is_more q2 judged=0.7 final=and_there_is_more")
    other = Endpointer(Endpointing(patience=1.0))
    play(other, "v10 q2 judged=0.7 final=and_there_is_more")
    assert until_over(floor) == until_over(other)


def test_without_a_turn_model_words_and_silence_decide() -> None:
    waits = [wait(f"final={words}", patience=1.5) for words in ("that_is_all.", "that_is_all", "that_is_the")]
    assert waits == sorted(waits) and 160 < waits[0] < waits[1] < waits[2] <= 2208


def final(floor: Endpointer, over: float | None = None) -> list[FloorEvent]:
    """Let the recogniser say what it has heard, and how likely it was all."""
    return floor.transcript(Transcript("that is all", True, floor.now, end_probability=over))


def test_words_that_sound_like_more_are_waited_for_and_answered_later() -> None:
    waits, begun = [], []
    for over in (0.1, None, 0.9):
        floor = Endpointer(Endpointing(patience=4.0))
        play(floor, "v10 q2")
        events, guessed = final(floor, over), 0
        while floor.floor is Floor.PAUSE:
            guessed = guessed or (floor.now if EagerEndOfTurn("that is all") in events else 0)
            events += play(floor, "q1")
        waits.append(floor.now)
        begun.append(guessed or floor.now)
    assert waits[0] > waits[1] > waits[2]
    assert begun[1] == begun[2] == windows(12) < begun[0]
    assert 0 <= waits[0] - begun[0] - EAGER_MS * RATE // 1000 <= WINDOW


def test_how_words_sounded_is_forgotten_with_them() -> None:
    waits = []
    for over in (0.9, None):
        floor = Endpointer(Endpointing(patience=4.0))
        play(floor, "v10 q2")
        final(floor, over)
        play(floor, "v3 q2")
        final(floor)
        waits.append(until_over(floor))
    assert waits[0] == waits[1]


def test_a_silence_counts_from_where_the_level_fell() -> None:
    waits = []
    for told, quiet in ((10, 10), (10, 7), (10, 12), (9, 7)):
        floor = Endpointer(SCENARIO_ENDPOINTING)
        play(floor, "v10 q2")
        floor.level_fell(windows(told), windows(quiet))  # a later fall, or one of another pause, is none
        play(floor, "final=hi judged=1")
        waits.append(until_over(floor))
    assert waits[1] == waits[0] - 3 and waits[2] == waits[3] == waits[0]


def test_what_the_agent_asked_counts() -> None:
    assert wait("judged=0.7 final=yes", asked="Shall I book it?") < wait("judged=0.7 final=yes")
    assert wait("judged=0.9 final=B.", asked="Please spell your name.") > wait("judged=0.9 final=B.")


def test_an_agent_that_may_not_be_stopped_goes_on() -> None:
    floor = Endpointer()
    floor.configure(Options(endpointing=SCENARIO_ENDPOINTING, interrupt_response=False))
    assert play(floor, "speaks q10 v2 q9 v3") == [SpeechStarted(windows(21), interrupts=False)]
    assert floor.floor is Floor.USER


def test_a_reply_that_may_not_be_stopped_goes_on() -> None:
    floor = Endpointer()
    floor.configure(Options(endpointing=SCENARIO_ENDPOINTING))
    floor.agent.started(yields=False)
    assert play(floor, "q10 v2 q9 v3") == [SpeechStarted(windows(21), interrupts=False)]
    floor.agent.finished()
    assert floor.agent.yields, "the next one does"


@pytest.mark.parametrize(("assertiveness", "count"), [(0.0, 3), (0.25, 13), (0.5, 25), (1.0, 50)])
def test_assertiveness_says_how_long_a_voice_is_ignored(assertiveness: float, count: int) -> None:
    floor = Endpointer(Endpointing(assertiveness=assertiveness))
    assert play(floor, f"speaks q10 v{count - 1}") == [OVERLAP]
    assert play(floor, "v1") == [TAKEN]


def test_what_is_said_over_the_agent_is_transcribed_from_before_its_beginning() -> None:
    floor = Endpointer(Endpointing(padding_ms=320))
    play(floor, "speaks q20 v2")
    assert (floor.turn_start, floor.talking) == (windows(10), True)
    play(floor, "v30")  # an interruption: the transcript goes on
    assert floor.turn_start == windows(10)
    play(floor, "abandon speaks v8 q2")
    assert floor.talking is False
    play(floor, "final=okay")
    assert floor.turn_start is None


def manual() -> Endpointer:
    floor = Endpointer()
    floor.configure(Options(endpointing=SCENARIO_ENDPOINTING, detect_turns=False))
    return floor


def test_manual_all_audio_between_two_ends_is_a_turn() -> None:
    floor = manual()
    assert play(floor, "q5 v5") == []
    assert floor.turn_start == 0
    assert play(floor, "q50") == []
    assert play(floor, "end final=hi") == [
        PauseStarted(windows(60)),
        *known("hi"),
        EndOfTurn("hi", windows(60)),
    ]
    assert floor.floor is Floor.AGENT
    play(floor, "q1")
    assert (floor.floor, floor.turn_start) == (Floor.USER, windows(60))


def test_a_pause_does_not_end_the_turn_once_the_client_does() -> None:
    floor = Endpointer(SCENARIO_ENDPOINTING, has_turn_model=True)
    play(floor, "v10 q2 judged=0.5 final=hi.")
    resumed = floor.configure(Options(endpointing=SCENARIO_ENDPOINTING, detect_turns=False))
    assert (resumed, floor.floor) == ([TurnResumed()], Floor.USER)
    assert floor.extend_pause(windows(99)) + play(floor, "v5 q50 final=hi_there") == []
    assert play(floor, "end final=hi_there")[-1] == EndOfTurn("hi there", windows(67))


def test_manual_talk_counts_as_talking() -> None:
    floor = manual()
    play(floor, "q5")
    talking = [floor.talking]
    play(floor, "end")
    assert [*talking, floor.talking] == [True, False]


def test_manual_end_may_overtake_the_audio() -> None:
    floor = manual()
    assert floor.end_turn(1000) == [PauseStarted(1000)]  # the samples are still on their way
    assert floor.turn_start == 0
    assert play(floor, "q0") == []
    assert floor.vad(512, 1.0) == floor.vad(1024, 1.0) == []
    assert floor.transcript(Transcript("hi", True, 1000)) == [*known("hi"), EndOfTurn("hi", 1000)]


def test_manual_end_without_new_audio_is_nothing() -> None:
    floor = manual()
    floor.end_turn(1000)
    floor.vad(512, 1.0)
    floor.transcript(Transcript("hi", True, 1000))
    assert floor.end_turn(1000) == []
    assert floor.floor is Floor.AGENT


def test_manual_abandoned_audio_on_its_way_is_not_heard() -> None:
    floor = manual()
    floor.abandon_turn(1024)
    assert floor.vad(512, 1.0) == floor.vad(1024, 1.0) == []
    assert floor.floor is Floor.NOBODY
    floor.vad(1536, 1.0)
    assert floor.turn_start == 1024


STEPS = st.one_of(
    st.tuples(st.sampled_from("vqh"), st.integers(1, 12)).map(lambda step: f"{step[0]}{step[1]}"),
    st.sampled_from(
        "final= final=hi final=okay partial=hi stale=1 end abandon done speaks ends dismiss".split()
    ),
)
BEGINS: set[type] = {SpeechStarted, OverlapStarted}
FOLLOWS: dict[type | None, set[type]] = {
    None: BEGINS,
    SpeechStarted: {PauseStarted, *BEGINS},
    PauseStarted: {Transcribed, NothingSaid, TurnResumed, *BEGINS},
    Transcribed: {Transcribed, EagerEndOfTurn, EndOfTurn, TurnResumed, NothingSaid, *BEGINS},
    EagerEndOfTurn: {Transcribed, TurnResumed, EndOfTurn, NothingSaid, *BEGINS},
    TurnResumed: {PauseStarted, *BEGINS},
    EndOfTurn: BEGINS,
    NothingSaid: BEGINS,
    OverlapStarted: {OverlapEnded, SpeechStarted},
    OverlapEnded: {BackchannelEnded, *BEGINS},
    BackchannelEnded: BEGINS,
}
"""What may come next; SpeechStarted may follow anything because the client may abandon a turn.

A second final transcript of a pause is told after its first sign of an end, which is told once.
"""


@given(st.lists(STEPS, max_size=60))
@example(["v3", "q2", "final=hi", "final=hi", "end"])
def test_any_sequence_keeps_its_order_and_gives_the_same_again(steps: list[str]) -> None:
    script = " ".join(steps)
    events = play(Endpointer(SCENARIO_ENDPOINTING), script)
    assert play(Endpointer(SCENARIO_ENDPOINTING), script) == events
    last: type | None = None
    for event in events:
        assert type(event) in FOLLOWS[last], events
        last = type(event)
    for place, event in enumerate(events):
        if isinstance(event, EndOfTurn):
            pause = max(at for at, one in enumerate(events[:place]) if isinstance(one, PauseStarted))
            assert sum(isinstance(one, EagerEndOfTurn) for one in events[pause:place]) == 1


@given(
    talk=st.lists(st.tuples(st.booleans(), st.integers(1, 40)), min_size=1, max_size=8),
    cuts=st.lists(st.integers(0, 20_000), max_size=30),
)
def test_the_same_audio_cut_anywhere_gives_the_same_events(
    talk: list[tuple[bool, int]], cuts: list[int]
) -> None:
    levels = np.concatenate([np.full(length * 400, 0.3 * loud) for loud, length in talk])
    pcm = (levels * 32767).astype("<i2").tobytes()

    def events(cuts: list[int]) -> list[FloorEvent]:
        vad, floor, found, start = ScriptedVad().stream(), Endpointer(SCENARIO_ENDPOINTING), [], 0
        for end in [*sorted({min(cut, len(levels)) for cut in cuts}), len(levels)]:
            for at, probability in vad.feed(AudioChunk(pcm[2 * start : 2 * end], RATE, start)):
                found += floor.vad(at, probability)
            start = end
        return found

    assert events(cuts) == events([])


@pytest.mark.parametrize("late", ["final=hi.", "judged=1"])
def test_a_late_answer_does_not_end_the_turn_while_a_voice_may_be_the_callers(late: str) -> None:
    """The soft onset of more words is held back: the floor has not heard of it yet."""
    floor = Endpointer(SCENARIO_ENDPOINTING, has_turn_model=True)
    floor.caller.level = -20.0
    play(floor, "v10 q11")
    play(floor, {"final=hi.": "judged=1", "judged=1": "final=hi."}[late])
    end = floor.now + WINDOW
    assert floor.judge(Window(end, 1.0, 10**-4.0)) == []
    assert EndOfTurn("hi.", windows(10)) not in play(floor, late)
    assert floor.floor is Floor.PAUSE
    (held, loud) = floor.judge(Window(end + WINDOW, 1.0, 10**-2.0))
    events = [*floor.vad(held.end, 1.0), *floor.vad(loud.end, 1.0)]
    assert events[-1] == TurnResumed() and EndOfTurn("hi.", windows(10)) not in events


def test_a_turn_that_the_client_ends_waits_for_no_more_audio() -> None:
    floor = Endpointer(SCENARIO_ENDPOINTING)
    floor.caller.level = -20.0
    play(floor, "v10 q2")
    floor.judge(Window(floor.now + WINDOW, 1.0, 10**-4.0))
    assert END_STOP in play(floor, "end final=hi.")


def test_a_turn_model_is_waited_for() -> None:
    """On a busy machine its first answer comes late; without one, words alone would end the turn."""
    floor = Endpointer(has_turn_model=True)
    play(floor, "v10 q2 final=that_is_all.")
    play(floor, "q9")  # 352 ms of silence
    assert floor.floor is Floor.PAUSE
    assert play(floor, "judged=1") == [EndOfTurn("that is all.", windows(10))]
    play(floor, "v10 q2 final=that_is_all.")
    assert len(play(floor, "q40")) == 1  # an answer that never comes is not waited for


@pytest.mark.parametrize("words", ["I_want_a", "well,", "so..."])
def test_an_answer_to_half_a_sentence_is_begun_when_it_may_be_wanted(words: str) -> None:
    floor = Endpointer(Endpointing(patience=5.0), has_turn_model=True)
    text = words.replace("_", " ")
    assert play(floor, f"v10 q2 final={words}")[2:] == [Transcribed(text)]
    assert play(floor, "judged=0.2 q20") == []  # more is likely to come: it would wait for long
    events = play(floor, "judged=1 q60")
    assert events == [EagerEndOfTurn(text), EndOfTurn(text, windows(10))]


def test_a_pause_is_long_enough_between_two_windows_unless_there_was_voice_in_the_last() -> None:
    wait = Endpointing(min_wait_ms=150, max_wait_ms=150)
    floor = Endpointer(wait)
    assert play(floor, "v10 q4 final=hi") == [STARTED, PAUSED, *known("hi")]
    assert floor.extend_pause(windows(10) + RATE * 149 // 1000) == []
    assert floor.extend_pause(windows(10) + RATE * 150 // 1000) == [END]
    assert floor.extend_pause(windows(20)) == []

    resuming = Endpointer(wait)
    play(resuming, "v10 q3 v1 final=hi")
    assert resuming.extend_pause(windows(20)) == []


def test_a_vocal_tic_in_silence_takes_no_turn_and_may_begin_one() -> None:
    floor = Endpointer()
    assert EndOfTurn not in [type(event) for event in play(floor, "v10 q2 final=um q100")]
    assert floor.floor is Floor.NOBODY
    events = play(floor, "v10 q2 final=um q20 v30 q2 final=um_a_table_for_two. judged=0.9 q100")
    assert [event.text for event in events if isinstance(event, EndOfTurn)] == ["um a table for two."]
