"""Speech over the agent, in virtual time: what pauses it, what it goes on after, and what stops it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rejoinder.agent.simulate.scenario import LOUDEST, SCENARIO_ENDPOINTING, SOFT, Talk
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import (
    BackchannelEnded,
    EndOfTurn,
    Endpointing,
    OverlapEnded,
    OverlapStarted,
    PartialTranscript,
    ReplyAudio,
    ReplyDone,
    Session,
    SpeechStarted,
    TurnTraced,
)
from rejoinder.pipeline.overlap_timer import MAX_OVERLAP_SECONDS
from rejoinder.pipeline.replying.playout import LEAD_SECONDS
from rejoinder.pipeline.turns.floor import Floor

WEATHER = "It is sunny today. Take a hat, if you go out."
WHOLE = [("user", "what is the weather"), ("assistant", WEATHER)]


def spoken_over(*lines: str, seconds: float = 0.4, at: float = 3.0, **more: object) -> Talk:
    """Return a conversation in which something is said over the agent."""
    talk = Talk("what is the weather", *lines, replies=(WEATHER, "Fine."), **more)
    talk.says(1.2, at=0.2)
    talk.says(seconds, at=at)
    return talk


def test_a_backchannel_pauses_the_agent() -> None:
    talk = spoken_over("Mm-hm.", holds_audio=True).run(until=8.0)
    assert talk.timeline()[-7:] == [
        "2.560 audio 1: 0.64 s until 3.160",
        "3.180 OverlapStarted(at=47616)",
        "3.320 OverlapEnded(text='Mm-hm.', is_over=False)",
        "3.320 audio 1: 0.24 s until 3.540",
        "3.560 BackchannelEnded(text='Mm-hm.')",
        "3.580 audio 1: 0.68 s until 4.220",
        f"4.260 reply 1 completed: {WEATHER}",
    ]
    assert talk.said() == WHOLE
    assert len(talk.llm.prompts) == 1
    assert talk.of(TurnTraced)[-1].trace.counts["false_interruptions"] == 1


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("line", ["", "Okay.", "Yeah, right.", "(coughs)"])
def test_nothing_of_the_reply_is_lost_or_said_twice(line: str, holds: bool) -> None:
    talk, alone = (
        spoken_over(line, holds_audio=holds).run(until=8.0),
        Talk("what is the weather", replies=(WEATHER,)),
    )
    alone.says(1.2, at=0.2)
    alone.run(until=8.0)
    assert b"".join(event.chunk.pcm for event in talk.of(ReplyAudio)) == b"".join(
        event.chunk.pcm for event in alone.of(ReplyAudio)
    )
    assert talk.done() == [(1, "completed", WEATHER)]
    assert talk.said() == WHOLE
    assert len(talk.of(EndOfTurn)) == len(talk.of(SpeechStarted)) == 1


def test_words_from_before_another_sound_do_not_end_it() -> None:
    """The speaker falls quiet, "okay" is being written down, and a click says that it is not over.

    The agent speaks on once, under all of it.
    """
    talk = Talk("what is the weather", "Okay.", replies=(WEATHER,), holds_audio=True)
    talk.stt.seconds = 0.1
    talk.says(1.2, at=0.2)
    talk.says(0.16, at=3.0, sound=LOUDEST)
    talk.says(0.04, at=3.16, sound=SOFT)
    talk.says(0.02, at=3.2, sound=LOUDEST)
    talk.says(0.28, at=3.22, sound=SOFT)
    talk.run(until=8.0)
    assert talk.when(OverlapEnded) == [3.3]
    assert talk.said() == WHOLE


def test_a_client_that_holds_has_what_it_held_to_play_first() -> None:
    """The clock of the reply stands still with the client, so it never has more than the lead."""
    talk = spoken_over("Mm-hm.", holds_audio=True).run(until=8.0)
    (paused,), (resumed,) = talk.when(OverlapStarted), talk.when(OverlapEnded)
    sent = [(at, event.chunk.seconds) for at, event in talk.log if isinstance(event, ReplyAudio)]
    assert not [at for at, _ in sent if paused < at < resumed]
    began = talk.when(ReplyAudio)[0]
    for at, _ in sent:
        played = (min(at, paused) - began) + max(0.0, at - resumed)
        ahead = sum(seconds for when, seconds in sent if when <= at) - played
        assert ahead <= LEAD_SECONDS + 0.081, at  # a slice more, and the one after the pause


def test_words_are_an_interruption_though_they_are_short() -> None:
    talk = spoken_over("stop").run(until=8.0)
    assert talk.done()[0] == (1, "cancelled", "It is sunny today. Take a")
    assert talk.said()[1:3] == [("assistant", "It is sunny today. Take a—"), ("user", "stop")]
    assert talk.of(OverlapEnded) == []


def test_a_voice_that_goes_on_is_an_interruption_before_its_words_are_known() -> None:
    talk = spoken_over("what about Sunday", seconds=2.0, holds_audio=True).run(until=8.0)
    (paused,), interrupted = talk.when(OverlapStarted), talk.when(SpeechStarted)[1]
    assert 0.5 < interrupted - paused < 0.7
    assert talk.done()[0] == (1, "cancelled", "It is sunny today. Take a")  # what was held was not heard
    assert talk.of(PartialTranscript)[-1].text == "what about Sunday"


def test_a_possible_cough_emits_no_words() -> None:
    talk = spoken_over("Mm-hm.", seconds=0.7).run(until=8.0)
    assert not [at for at in talk.when(PartialTranscript) if at > 2.0]


@pytest.mark.parametrize(("assertiveness", "stops"), [(0.0, True), (0.5, False), (1.0, False)])
def test_assertiveness(assertiveness: float, stops: bool) -> None:
    times = Endpointing(release=0.35, pause_ms=64, assertiveness=assertiveness)
    talk = spoken_over("Mm-hm.", endpointing=times).run(until=8.0)
    assert (talk.done()[0][1] == "cancelled") is stops


def test_a_cough_before_the_first_word_of_the_answer() -> None:
    """It ends neither the answer nor the wait for it (livekit/agents #1229)."""
    talk = spoken_over("", seconds=0.3, at=1.8, llm=ScriptedLlm([WEATHER], first=1.0)).run(until=8.0)
    (paused,), (resumed,) = talk.when(OverlapStarted), talk.when(OverlapEnded)
    assert 1.74 < paused < resumed < talk.when(ReplyAudio)[0]
    assert talk.said() == WHOLE


def test_a_cough_over_the_models_work_costs_nothing() -> None:
    alone = Talk("what is the weather", replies=(WEATHER,), llm=ScriptedLlm([WEATHER], first=1.0))
    alone.says(1.2, at=0.2)
    talk = spoken_over("", seconds=0.3, at=1.8, llm=ScriptedLlm([WEATHER], first=1.0))
    assert talk.run(until=8.0).when(ReplyAudio)[0] == alone.run(until=8.0).when(ReplyAudio)[0]


def test_yes_over_the_last_words_is_an_answer() -> None:
    talk = Talk("book it", "Yes.", replies=("Shall I book it now?", "Done."))
    talk.says(0.6, at=0.2)
    talk.says(0.4, at=2.2)  # the question lasts until 2.4
    talk.run(until=6.0)
    assert talk.when(OverlapStarted)[0] < 2.4
    assert talk.said() == [  # the question was heard to its end: nothing was cut off it
        ("user", "book it"),
        ("assistant", "Shall I book it now?"),
        ("user", "Yes."),
        ("assistant", "Done."),
    ]
    assert talk.done()[-1] == (2, "completed", "Done.")


def test_a_cough_while_the_last_audio_plays() -> None:
    talk = Talk("one", "", replies=("It is a fine day.",), holds_audio=True)
    talk.says(1.2, at=0.2)
    talk.says(0.4, at=2.4)  # all of it was sent by then
    talk.run(until=6.0)
    assert talk.when(ReplyDone)[0] < talk.when(OverlapStarted)[0] < talk.when(OverlapEnded)[0]
    assert talk.done() == [(1, "completed", "It is a fine day.")]
    assert talk.said() == [("user", "one"), ("assistant", "It is a fine day.")]
    assert talk.session.reply is None


def test_speech_resumed_right_after_the_reply_began_is_one_turn() -> None:
    """Less than ``LEAST_HEARD_SECONDS`` were heard: no message of the agent, and the question is whole."""
    talk = Talk("I want a table", "for two at eight", replies=("Sure, for when would that be?", "Fine."))
    talk.says(1.0, at=0.2)
    talk.says(1.0, at=1.55)  # the answer begins at 1.54
    talk.run(until=6.0)
    assert talk.done()[0][:2] == (1, "cancelled")
    assert talk.llm.prompts[-1] == [{"role": "user", "content": "I want a table for two at eight"}]
    assert talk.said() == [
        ("user", "I want a table"),
        ("user", "for two at eight"),
        ("assistant", "Sure, for when would that be?"),
    ]


def test_a_client_that_stops_sending_audio_does_not_pause_the_agent_for_ever() -> None:
    talk = Talk("what is the weather", replies=(WEATHER,))

    async def hear(session: Session) -> None:
        session.add_text("what is the weather")
        session.respond()

    async def cough(session: Session) -> None:
        for _ in range(6):
            await session.hear(b"\x00\x30\x00\xd0" * 160)

    talk.does(hear, at=0.1)
    talk.does(cough, at=1.0)
    talk.run(until=9.0, microphone=False)
    assert round(talk.when(OverlapEnded)[0] - talk.when(OverlapStarted)[0], 3) == MAX_OVERLAP_SECONDS
    assert talk.done() == [(1, "completed", WEATHER)]


def test_nor_does_a_harmless_sound_keep_the_floor_for_ever() -> None:
    """The agent speaks on under it, and then the audio stops."""
    talk = Talk("what is the weather", "Mm-hm.", replies=(WEATHER * 3,))

    async def hum(session: Session) -> None:
        session.add_text("what is the weather")
        session.respond()
        for _ in range(25):
            await session.hear(LOUDEST)
            await asyncio.sleep(0.02)

    talk.does(hum, at=1.0)
    talk.run(until=9.0, microphone=False)
    assert [event.is_over for event in talk.of(OverlapEnded)] == [False]
    over = talk.when(BackchannelEnded)[0] - talk.when(OverlapStarted)[0]
    assert round(over, 3) == MAX_OVERLAP_SECONDS
    assert talk.session.floor.floor is Floor.AGENT


def test_a_reply_that_is_asked_for_while_one_is_paused_waits_too() -> None:
    talk = spoken_over("Mm-hm.")
    talk.does(lambda session: session.respond(), at=3.1)
    talk.run(until=8.0)
    assert [status for _, status, _ in talk.done()] == ["cancelled", "completed"]
    assert [at for at in talk.when(ReplyAudio) if 3.1 < at < talk.when(OverlapEnded)[0]] == []


def test_stopping_a_paused_reply() -> None:
    """After that there is no overlap, and a backchannel is a turn."""
    talk = spoken_over("Okay.")
    talk.does(lambda session: session.interrupt(), at=3.1)
    talk.run(until=8.0)
    assert [status for _, status, _ in talk.done()] == ["cancelled", "completed"]
    assert talk.said()[-2:] == [("user", "Okay."), ("assistant", "Fine.")]


def test_clearing_the_audio_lets_a_paused_reply_go_on() -> None:
    talk = spoken_over("stop")
    talk.does(lambda session: session.clear_audio(), at=3.41)
    talk.run(until=8.0)
    assert talk.when(OverlapEnded)[0] == 3.41
    assert talk.said() == WHOLE


@pytest.mark.parametrize("change", [{"detect_turns": False}, {"interrupt_response": False}])
def test_an_agent_that_may_be_stopped_no_more_goes_on(change: dict[str, bool]) -> None:
    talk = spoken_over("stop")

    def configure(session: Session) -> None:
        session.configure(replace(session.options, **change))  # type: ignore[arg-type]

    talk.does(configure, at=3.2)
    talk.run(until=3.3)
    assert talk.when(OverlapEnded) == [3.2]


def test_a_reply_that_fails_while_paused_ends_with_an_event() -> None:
    talk = spoken_over("Mm-hm.", at=1.75, llm=ScriptedLlm([WEATHER], first=0.5, fail_after=2))
    talk.run(until=8.0)
    assert [status for _, status, _ in talk.done()] == ["failed"]
    assert talk.session.reply is None


def test_the_defaults_pause_within_a_frame() -> None:
    talk = spoken_over("Mm-hm.", endpointing=Endpointing()).run(until=8.0)
    assert talk.when(OverlapStarted)[0] - 3.0 < 0.1
    assert SCENARIO_ENDPOINTING.notice_ms == Endpointing().notice_ms
