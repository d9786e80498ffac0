"""What the caller waits, from session events at given times."""

from __future__ import annotations

from rejoinder.agent.wires.silence import Silence
from rejoinder.pipeline import (
    RATE,
    AudioChunk,
    EndOfTurn,
    Event,
    NothingSaid,
    OverlapEnded,
    OverlapStarted,
    ReplyAudio,
    ReplyCalled,
    ReplyDone,
    ReplyStarted,
    SpeechStarted,
    ToolCall,
)

CALL = ToolCall("c1", "weather", "{}")


def audio(turn: int, seconds: float) -> ReplyAudio:
    return ReplyAudio(turn, AudioChunk(bytes(2 * int(seconds * RATE)), RATE))


def longest(*events: tuple[float, Event], end: float | None = None) -> float:
    """Return the longest silence of these events, each with its time; the caller's audio arrives in time."""
    silence = Silence()
    for at, event in events:
        if isinstance(event, ReplyAudio):
            silence.audio.append((at, event.chunk))
        else:
            silence.take(event, at, int(at * RATE))
    if end is not None:
        silence.hang_up(end)
    return round(silence.longest, 3)


ASKED = (1.5, EndOfTurn("what is the weather", RATE))
"""The caller's last sound is at 1 s."""


def test_reply_beside_the_conversation_neither_owes_nor_answers() -> None:
    beside = ReplyStarted(7, speaks=False, out_of_band=True)
    done = ReplyDone(7, "completed", "Calm.")
    assert longest((0.0, beside), (1.0, done), end=9.0) == 0.0
    assert longest(ASKED, (1.6, beside), (1.8, done), (3.0, audio(1, 0.5))) == 2.0


def test_silence_begins_with_the_callers_last_sound() -> None:
    assert longest(ASKED, (1.5, ReplyStarted(1)), (2.0, audio(1, 0.5))) == 1.0


def test_greeting_is_awaited_from_its_reply() -> None:
    assert longest((0.0, ReplyStarted(1)), (0.25, audio(1, 0.5))) == 0.25


def test_pause_between_two_clauses_counts() -> None:
    events = (1.5, ReplyStarted(1)), (1.5, audio(1, 0.5)), (2.8, audio(1, 0.5))
    assert longest(ASKED, *events) == 0.8


def test_tool_counts_from_the_last_audio_to_the_next() -> None:
    events = (
        (1.5, ReplyStarted(1)),
        (1.5, audio(1, 0.5)),
        (1.6, ReplyCalled(1, CALL)),
        (1.6, ReplyDone(1, "completed", "Let me see.")),
        (4.0, ReplyStarted(2)),
        (4.2, audio(2, 0.5)),
    )
    assert longest(ASKED, *events) == 2.2


def test_time_after_an_answer_is_no_silence() -> None:
    done = ReplyDone(1, "completed", "It is sunny.")
    assert longest(ASKED, (1.5, ReplyStarted(1)), (1.5, audio(1, 0.5)), (1.6, done), end=60.0) == 0.5


def test_caller_who_speaks_ends_the_silence() -> None:
    assert longest(ASKED, (1.5, ReplyStarted(1)), (3.0, SpeechStarted(3 * RATE)), end=60.0) == 2.0


def test_caller_who_hangs_up_has_waited() -> None:
    assert longest(ASKED, (1.5, ReplyStarted(1)), end=6.0) == 5.0


def test_noise_during_a_tool_begins_a_new_silence() -> None:
    events = (
        (1.5, ReplyStarted(1)),
        (1.6, ReplyCalled(1, CALL)),
        (1.6, ReplyDone(1, "completed", "")),
        (2.0, SpeechStarted(2 * RATE)),
        (3.0, NothingSaid(2 * RATE)),
        (4.5, ReplyStarted(2)),
        (4.6, audio(2, 0.5)),
    )
    assert longest(ASKED, *events) == 1.6


def test_sound_of_the_caller_over_the_agent_is_no_silence() -> None:
    events = (1.5, ReplyStarted(1)), (1.5, audio(1, 0.2)), (1.7, OverlapStarted(2 * RATE))
    assert longest(ASKED, *events, (3.0, OverlapEnded("")), (3.1, audio(1, 0.2))) == 0.5


def test_each_turn_has_its_own() -> None:
    silence = Silence()
    for at, event in (ASKED, (1.5, ReplyStarted(1)), (2.0, audio(1, 0.5))):
        if isinstance(event, ReplyAudio):
            silence.audio.append((at, event.chunk))
        else:
            silence.take(event, at, int(at * RATE))
    assert (silence.take_turn(), silence.take_turn(), silence.longest) == (1.0, 0.0, 1.0)
