"""What the client may do to a conversation: end turns, ask for replies, type, interrupt, correct."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from rejoinder.agent.simulate.scenario import QUIET, SPEECH_CHUNK, Talk
from rejoinder.models.scripted import (
    ScriptedLlm,
    ScriptedStt,
    ScriptedSttStream,
    ScriptedTts,
    ScriptedTurnModel,
    ScriptedVad,
    ScriptedVadStream,
)
from rejoinder.pipeline import (
    AudioChunk,
    EndOfTurn,
    Floor,
    NothingSaid,
    Options,
    OverlapStarted,
    PartialTranscript,
    ReplyAudio,
    ReplyDone,
    ReplyRequest,
    ReplyStarted,
    Session,
    SpeechStarted,
)

WEATHER = "It is sunny today. Take a hat, if you go out."


def manual(*lines: str, **more: Any) -> Talk:
    """A conversation in which the client says where turns end."""
    return Talk(*lines, detect_turns=False, **more)


def test_manual_turns() -> None:
    talk = manual("hello", "more")
    talk.says(0.6, at=0.2)
    talk.does(lambda session: session.end_user_turn(), at=1.21)
    talk.does(lambda session: session.end_user_turn(), at=3.01)
    talk.run(until=3.58)
    assert talk.timeline() == [
        "0.560 partial: hello",
        "0.920 partial: hello",
        "1.210 PauseStarted(at=19200)",
        "1.270 Transcribed(text='hello')",
        "1.270 EagerEndOfTurn(text='hello')",
        "1.270 EndOfTurn(text='hello', at=19200)",
        "1.270 reply 1 starts",
        "1.400 text 1: Sunny.",
        "1.400 audio 1: 0.36 s until 1.520",
        "1.560 reply 1 completed: Sunny.",
        "1.760 partial: more",
        "2.260 partial: more",
        "2.760 partial: more",
        "3.010 PauseStarted(at=48000)",
        "3.070 Transcribed(text='more')",
        "3.070 EagerEndOfTurn(text='more')",
        "3.070 EndOfTurn(text='more', at=48000)",
        "3.070 reply 2 starts",
        "3.200 text 2: Sunny.",
        "3.200 audio 2: 0.36 s until 3.320",
        "3.360 reply 2 completed: Sunny.",
        "3.560 partial: more",
    ]
    assert talk.llm.prompts[0] == [{"role": "user", "content": "hello"}]
    assert talk.said() == [
        ("user", "hello"),
        ("assistant", "Sunny."),
        ("user", "more"),
        ("assistant", "Sunny."),
    ]


async def burst(session: Session) -> None:
    """A client that sends a recording and its end in one go, before anything of it could be looked at."""
    for _ in range(30):
        await session.hear(SPEECH_CHUNK)
    await session.end_user_turn()


def test_a_manual_turn_in_one_burst() -> None:
    talk = quiet(manual("hello"), burst, at=0.5)
    assert talk.of(EndOfTurn) == [EndOfTurn("hello", 30 * 320)]
    assert talk.done() == [(1, "completed", "Sunny.")]


def quiet(talk: Talk, *acts: Callable[[Session], Awaitable[None] | None], at: float) -> Talk:
    """Run a conversation without a microphone, in which the client does some things at once."""
    for act in acts:
        talk.does(act, at=at)
    return talk.run(until=at + 5.0, microphone=False)


def test_a_reply_asked_for_in_one_burst_waits_for_the_words() -> None:
    talk = quiet(manual("hello", create_response=False), burst, lambda session: session.respond(), at=0.5)
    assert talk.said() == [("user", "hello"), ("assistant", "Sunny.")]
    assert talk.llm.prompts == [[{"role": "user", "content": "hello"}]]


def test_second_commit_without_new_audio_is_ignored() -> None:
    talk = quiet(manual("hello"), burst, lambda session: session.end_user_turn(), at=0.5)
    assert len(talk.of(EndOfTurn)) == 1
    assert talk.done() == [(1, "completed", "Sunny.")]


def test_commit_without_speech_emits_nothing_said_with_turn_detection() -> None:
    talk = Talk("hello")
    talk.does(lambda session: session.end_user_turn(), at=1.01)
    talk.says(1.2, at=2.0)
    talk.run(until=5.0)
    assert talk.of(NothingSaid, EndOfTurn) == [NothingSaid(16_000), EndOfTurn("hello", 51_200)]
    assert talk.done() == [(1, "completed", "Sunny.")]


def test_audio_right_after_a_commit_belongs_to_the_next_turn() -> None:
    fed: list[AudioChunk] = []

    class NotingStt(ScriptedSttStream):
        def feed(self, chunk: AudioChunk) -> None:
            super().feed(chunk)
            fed.append(chunk)

        def reset(self) -> None:
            super().reset()
            fed.clear()

    stt = ScriptedStt(["one", "two"])
    stt.stream = lambda: NotingStt(stt)  # type: ignore[method-assign]
    talk = manual(create_response=False, stt=stt)
    talk.does(burst, at=0.5)
    talk.does(lambda session: session.hear(100 * SPEECH_CHUNK), at=0.5)
    talk.does(lambda session: session.end_user_turn(), at=1.0)
    talk.run(until=3.0, microphone=False)
    assert talk.of(EndOfTurn) == [EndOfTurn("one", 30 * 320), EndOfTurn("two", 130 * 320)]
    assert (fed[0].start, sum(map(len, fed))) == (30 * 320, 100 * 320)


def test_the_end_of_a_reply_can_be_truncated_before_it_has_sounded() -> None:
    answers: list[str | None] = []
    talk = Talk("one", replies=(WEATHER,))
    talk.says(1.2, at=0.2)
    talk.run(until=6.0)
    (done,) = talk.when(ReplyDone)
    talk = Talk("one", replies=(WEATHER,))
    talk.says(1.2, at=0.2)
    talk.does(lambda session: answers.append(session.truncate(1, 1.0)), at=done + 0.05)
    talk.run(until=6.0)
    assert answers == ["It is sunny"]
    assert talk.said() == [("user", "one"), ("assistant", "It is sunny—")]
    assert talk.session.floor.floor is Floor.NOBODY


class Telling(ScriptedTts):
    """Says "twelve dollars fifty cents" for long, and tells."""

    async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        async with aclosing(super().speak(text)) as chunks:
            async for chunk in chunks:
                yield replace(chunk, words=((0.1, 2), (0.2, 8), (0.8, 15)))


@pytest.mark.parametrize(
    ("seconds", "heard"),
    [(0.0, ""), (0.15, "It"), (0.7, "It costs"), (0.8, "It costs $12.50"), (9.0, "It costs $12.50")],
)
def test_truncate_returns_the_words_as_written(seconds: float, heard: str) -> None:
    answers: list[str | None] = []
    talk = Talk("one", replies=("It costs $12.50",), tts=Telling())
    talk.says(1.2, at=0.2)
    talk.does(lambda session: answers.append(session.truncate(1, seconds)), at=5.0)
    talk.run(until=6.0)
    assert talk.done() == [(1, "completed", "It costs $12.50")]
    assert answers == [heard]
    assert talk.said()[1:] == [("assistant", heard + "—")][: len(heard)]


def test_an_interrupted_reply_holds_the_words_that_the_voice_had_said() -> None:
    talk = Talk("one", "two", replies=("It costs $12.50", "Fine."), tts=Telling())
    talk.says(1.2, at=0.2)
    talk.run(until=2.0)
    (begin,) = [at for at, event in talk.log if isinstance(event, ReplyStarted)]
    heard = {}
    for played in (0.15, 0.5, 0.75):
        talk = Talk("one", "two", replies=("It costs $12.50", "Fine."), tts=Telling())
        talk.says(1.2, at=0.2)
        talk.does(lambda session: session.interrupt(), at=begin + played)
        talk.run(until=6.0)
        heard[played] = talk.said()[1][1]
    assert heard == {0.15: "It—", 0.5: "It costs—", 0.75: "It costs—"}


def test_two_turns_in_a_row_are_answered_by_the_second() -> None:
    talk = manual("one", "two", replies=(WEATHER, "Fine."))
    talk.does(burst, at=0.5)
    talk.does(burst, at=1.0)
    talk.run(until=6.0, microphone=False)
    assert [(turn, status) for turn, status, _ in talk.done()] == [(1, "cancelled"), (2, "completed")]
    assert talk.done()[0][2] == talk.heard(1, at=talk.when(ReplyStarted)[1])
    assert [words for role, words in talk.said() if role == "user"] == ["one", "two"]
    assert talk.llm.prompts[1][-1]["content"] == "two"


def test_the_end_of_a_turn_in_which_nothing_was_said() -> None:
    talk = quiet(manual("hello"), lambda session: session.end_user_turn(), at=0.5)
    assert [event for _, event in talk.log] == [NothingSaid(0)]
    talk = quiet(manual("", "hello"), burst, at=0.5)
    assert talk.of(NothingSaid) == [NothingSaid(30 * 320)]
    assert talk.done() == []


def test_ending_a_detected_turn_early() -> None:
    talk = Talk("hello", turn=ScriptedTurnModel(0.0))
    talk.says(3.0, at=0.2)
    talk.does(lambda session: session.end_user_turn(), at=1.21)
    talk.run(until=2.0)
    assert talk.of(EndOfTurn) == [EndOfTurn("hello", 19200)]
    assert talk.of(OverlapStarted)[0].at >= 19200  # the answer is spoken into


def test_cleared_audio_is_not_heard() -> None:
    talk = Talk("hello")
    talk.says(1.0, at=0.2)
    talk.does(lambda session: session.clear_audio(), at=1.25)
    talk.run(until=4.0)
    assert talk.of(SpeechStarted) != []
    assert talk.of(EndOfTurn, ReplyStarted) == []
    assert talk.session.floor.floor is Floor.NOBODY


def test_cleared_audio_emits_no_words() -> None:
    talk = Talk(stt=ScriptedStt(["hello"], seconds=0.3))
    talk.says(1.0, at=0.2)
    talk.does(lambda session: session.clear_audio(), at=0.6)  # while a partial transcript is made
    talk.run(until=0.85)
    assert talk.of(PartialTranscript) == []


def test_cleared_audio_is_not_heard_in_a_burst_either() -> None:
    async def speak_clear_speak(session: Session) -> None:
        for _ in range(20):
            await session.hear(SPEECH_CHUNK)
        session.clear_audio()
        for _ in range(10):
            await session.hear(SPEECH_CHUNK)
        await session.end_user_turn()
        assert session.floor.turn_start == 20 * 320

    talk = quiet(manual("hello"), speak_clear_speak, at=0.5)
    assert talk.of(EndOfTurn) == [EndOfTurn("hello", 30 * 320)]


def test_clearing_drops_a_guess_and_lets_a_reply_speak() -> None:
    talk = Talk("one", "two", replies=(WEATHER,), turn=ScriptedTurnModel(0.0))
    talk.says(1.2, at=0.2)
    talk.does(lambda session: session.clear_audio(), at=1.7)
    talk.run(until=6.0)
    assert (len(talk.llm.prompts), talk.done(), talk.said()) == (1, [], [])

    talk = Talk("one", replies=(WEATHER,))
    talk.says(1.2, at=0.2)
    talk.does(lambda session: session.clear_audio(), at=2.5)
    talk.run(until=6.0)
    assert talk.done() == [(1, "completed", WEATHER)]


def test_clearing_what_a_reply_was_asked_for_answers_the_rest() -> None:
    talk = Talk("one", create_response=False, turn=ScriptedTurnModel(0.0))
    talk.says(1.2, at=0.2)
    talk.does(lambda session: session.add_text("typed"), at=0.5)
    talk.does(lambda session: session.respond(), at=1.7)
    talk.does(lambda session: session.clear_audio(), at=1.8)
    talk.run(until=6.0)
    assert talk.when(ReplyStarted) == [1.8]
    assert talk.said() == [("user", "typed"), ("assistant", "Sunny.")]


def test_typed_words() -> None:
    floors: list[Floor] = []
    talk = Talk()
    talk.does(lambda session: session.add_text("Be kind.", "system"), at=0.1)
    talk.does(lambda session: session.add_text("hello"), at=0.2)
    talk.does(lambda session: session.respond(ReplyRequest("Shout.")), at=0.3)
    talk.does(lambda session: floors.append(session.floor.floor), at=0.6)
    talk.run(until=3.0)
    assert floors == [Floor.AGENT]
    assert talk.llm.prompts == [
        [{"role": "system", "content": "Shout. Be kind."}, {"role": "user", "content": "hello"}]
    ]
    assert talk.when(ReplyStarted) == [0.3]
    assert talk.done() == [(1, "completed", "Sunny.")]
    assert talk.session.floor.floor is Floor.NOBODY


def test_words_typed_during_a_guess_are_answered_too() -> None:
    talk = Talk("spoken")
    talk.says(1.2, at=0.2)
    talk.does(lambda session: session.add_text("typed"), at=1.65)
    talk.run(until=6.0)
    assert len(talk.llm.prompts) == 2
    assert talk.llm.prompts[1] == [{"role": "user", "content": "typed spoken"}]
    assert talk.done() == [(2, "completed", "Sunny.")]


def test_a_reply_replaces_the_one_that_speaks() -> None:
    talk = Talk("one", replies=(WEATHER, "Fine."))
    talk.says(1.2, at=0.2)
    talk.does(lambda session: session.respond(), at=2.9)
    talk.run(until=6.0)
    assert talk.done() == [(1, "cancelled", talk.heard(1, at=2.9)), (2, "completed", "Fine.")]
    assert talk.said() == [
        ("user", "one"),
        ("assistant", "It is sunny today.—"),
        ("assistant", "Fine."),
    ]


def test_a_reply_that_is_asked_for_while_the_user_talks_waits_for_the_end_and_answers_all() -> None:
    talk = Talk("one", replies=("Fine.",))
    talk.says(2.0, at=0.2)
    talk.does(lambda session: session.add_text("typed"), at=1.0)
    talk.does(lambda session: session.respond(), at=1.0)
    talk.run(until=6.0)
    assert talk.when(EndOfTurn) == talk.when(ReplyStarted) == [2.54]
    assert talk.llm.prompts[-1] == [{"role": "user", "content": "typed one"}]
    assert talk.said() == [("user", "typed"), ("user", "one"), ("assistant", "Fine.")]


def test_a_reply_that_is_asked_for_over_a_noise_comes_when_that_is_nothing() -> None:
    talk = Talk("", replies=("Fine.",))
    talk.says(0.4, at=0.2)
    talk.does(lambda session: session.add_text("typed"), at=0.4)
    talk.does(lambda session: session.respond(), at=0.4)
    talk.run(until=6.0)
    assert talk.when(NothingSaid) == talk.when(ReplyStarted)
    assert talk.said() == [("user", "typed"), ("assistant", "Fine.")]


def test_an_agent_that_may_not_be_stopped_speaks_when_it_is_asked_to() -> None:
    """It speaks into the user's turn, and answers that afterwards."""
    talk = Talk("one", replies=(WEATHER, "Fine."), interrupt_response=False)
    talk.says(2.0, at=0.2)
    talk.does(lambda session: session.respond(), at=1.0)
    talk.run(until=9.0)
    assert talk.when(ReplyStarted)[0] == 1.0
    assert [(turn, status) for turn, status, _ in talk.done()] == [(1, "completed"), (2, "completed")]
    assert talk.said()[-2:] == [("user", "one"), ("assistant", "Fine.")]


def test_a_reply_asked_for_in_a_pause_answers_the_turn() -> None:
    talk = Talk("one", "two", create_response=False)
    talk.says(1.2, at=0.2)
    talk.says(0.6, at=3.0)
    talk.does(lambda session: session.respond(ReplyRequest("Shout.")), at=1.6)
    talk.run(until=6.0)
    assert talk.when(EndOfTurn) == [1.74, 3.94]
    assert talk.when(ReplyStarted) == [1.74]
    assert talk.llm.prompts == [[{"role": "system", "content": "Shout."}, {"role": "user", "content": "one"}]]
    assert talk.said() == [("user", "one"), ("assistant", "Sunny."), ("user", "two")]  # it was asked for once


def test_a_reply_asked_for_in_a_pause_without_words_comes_anyway() -> None:
    talk = Talk("", create_response=False)
    talk.says(1.2, at=0.2)
    talk.does(lambda session: session.add_text("typed"), at=0.5)
    talk.does(lambda session: session.respond(), at=1.5)
    talk.run(until=6.0)
    assert talk.when(ReplyStarted) == talk.when(NothingSaid) == [2.3]
    assert talk.done() == [(1, "completed", "Sunny.")]


def test_a_reply_that_was_asked_for_may_be_called_off() -> None:
    talk = Talk("one", create_response=False)
    talk.says(1.2, at=0.2)
    talk.does(lambda session: session.respond(), at=1.6)
    talk.does(lambda session: session.interrupt(), at=1.65)
    talk.run(until=6.0)
    assert talk.said() == [("user", "one")]
    assert talk.llm.prompts == []
    assert talk.session.floor.floor is Floor.NOBODY


def test_interrupting_without_a_reply_does_nothing() -> None:
    talk = Talk()
    talk.does(lambda session: session.interrupt(), at=0.5)
    talk.run(until=1.0)
    assert talk.log == []


def test_interrupting() -> None:
    talk = Talk("one", replies=(WEATHER,))
    talk.says(1.2, at=0.2)
    talk.does(lambda session: session.interrupt(), at=2.9)
    talk.run(until=6.0)
    assert talk.done() == [(1, "cancelled", "It is sunny today.")]
    assert max(talk.when(ReplyAudio)) < 2.9
    assert talk.session.floor.floor is Floor.NOBODY


def test_truncating_a_reply() -> None:
    answers: list[str | None] = []
    talk = Talk("one", replies=(WEATHER,))
    talk.says(1.2, at=0.2)
    for at, turn, seconds in ((1.5, 1, 1.0), (5.0, 1, 1.0), (5.1, 1, 99.0), (5.2, 1, 0.0), (5.3, 7, 1.0)):

        def truncate(session: Session, turn: int = turn, seconds: float = seconds) -> None:
            answers.append(session.truncate(turn, seconds))

        talk.does(truncate, at=at)
    talk.run(until=6.0)
    assert answers == [None, "It is sunny", WEATHER, "", None]
    assert talk.said() == [("user", "one")]


def test_truncating_a_reply_that_speaks_ends_it() -> None:
    answers: list[str | None] = []
    talk = Talk("one", replies=(WEATHER,))
    talk.says(1.2, at=0.2)
    talk.does(lambda session: answers.append(session.truncate(1, 1.0)), at=2.9)
    talk.run(until=6.0)
    assert answers == ["It is sunny"]
    assert talk.said() == [("user", "one"), ("assistant", "It is sunny—")]
    assert [(turn, status) for turn, status, _ in talk.done()] == [(1, "cancelled")]
    assert max(talk.when(ReplyAudio)) < 2.9
    assert talk.session.floor.floor is Floor.NOBODY


def test_options_change_from_the_next_turn_on() -> None:
    talk = Talk("one", "two")
    talk.says(1.2, at=0.2)
    options = Options(instructions="Shout.", create_response=False)
    talk.does(lambda session: session.configure(options), at=3.0)
    talk.says(1.2, at=4.0)
    talk.does(lambda session: session.respond(), at=7.0)
    talk.run(until=9.0)
    assert talk.llm.prompts[1][0] == {"role": "system", "content": "Shout."}
    assert talk.when(ReplyStarted) == [1.74, 7.0]


@pytest.mark.parametrize("chunk", [1, 7, 320, 16_000, 48_000])
def test_the_size_of_chunks_makes_no_difference(chunk: int) -> None:
    """Three turns' worth of audio, much faster than real time and in pieces of any size."""
    pcm = 16 * QUIET + 50 * SPEECH_CHUNK + 100 * QUIET

    async def hear(session: Session) -> None:
        for first in range(0, len(pcm), 2 * chunk):
            await session.hear(pcm[first : first + 2 * chunk])

    talk = Talk("one", llm=ScriptedLlm(["Yes."], first=0.0))
    talk.does(hear, at=0.0)
    talk.run(until=5.0, microphone=False)
    assert [event for event in talk.of(SpeechStarted, EndOfTurn)] == [
        SpeechStarted(10 * 512),
        EndOfTurn("one", 42 * 512),
    ]
    assert talk.done() == [(1, "completed", "Yes.")]
    assert talk.session.received == len(pcm) // 2


def test_faster_than_real_time_waits_for_the_recogniser() -> None:
    async def hear(session: Session) -> None:
        for _ in range(50):
            await session.hear(50 * SPEECH_CHUNK)

    talk = Talk(stt=ScriptedStt(["on"], seconds=1.0))
    talk.does(hear, at=0.0)
    talk.run(until=60.0, microphone=False)
    assert talk.session.received == 50 * 16_000
    assert talk.session._user_audio.chunks.peak == 50
    assert len(talk.of(PartialTranscript)) > 3


def test_an_empty_chunk_is_nothing() -> None:
    talk = quiet(Talk(), lambda session: session.hear(b""), at=0.5)
    assert (talk.log, talk.session.received) == ([], 0)
    with pytest.raises(ValueError, match="even"):
        asyncio.run(talk.session.hear(b"odd"))


def test_audio_that_was_not_taken_leaves_no_gap() -> None:
    chunks: list[tuple[int, int]] = []

    class NotingStream(ScriptedVadStream):
        def feed(self, chunk: AudioChunk) -> list[tuple[int, float]]:
            chunks.append((chunk.start, chunk.end))
            return super().feed(chunk)

    async def give_up_and_go_on(session: Session) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await session.hear(1000 * SPEECH_CHUNK)
        assert 0 < session.received < 1000 * 320
        await session.hear(1000 * SPEECH_CHUNK)

    vad = ScriptedVad()
    vad.stream = NotingStream  # type: ignore[method-assign]
    talk = Talk(stt=ScriptedStt(["hello"], seconds=1.0), vad=vad)
    talk.does(give_up_and_go_on, at=0.0)
    talk.run(until=90.0, microphone=False)
    assert all(one[1] == other[0] for one, other in pairwise(chunks))
    assert chunks[-1][1] == talk.session.received
