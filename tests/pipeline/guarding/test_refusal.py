"""The audio of the sentence for refused clauses: made once for each voice, for all calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial

import pytest

from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedTts
from rejoinder.pipeline import AudioChunk, Guard, ModelError, Refusal, Session
from rejoinder.pipeline.guarding.refusal import MAX_VOICES


class Voice(ScriptedTts):
    def __init__(self, fails: int = 0) -> None:
        super().__init__()
        self.fails, self.asked = fails, 0

    async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.asked <= self.fails:
            raise ModelError("voice", "not ready")
        async for chunk in super().speak(text):
            yield chunk


def test_calls_that_begin_together_share_one_synthesis() -> None:
    async def calls() -> None:
        refusal, voice, other = Refusal("No."), Voice(), Voice()
        await asyncio.gather(*(refusal.prepare(voice) for _ in range(3)))
        await refusal.prepare(voice)
        assert voice.asked == 1 and refusal.audio(other) is None
        assert (audio := refusal.audio(voice)) and audio.seconds > 0.1

    asyncio.run(calls())


def test_a_voice_that_failed_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def calls() -> None:
        refusal, voice = Refusal("No."), Voice(fails=1)
        await refusal.prepare(voice)
        assert refusal.audio(voice) is None
        await refusal.prepare(voice)
        assert refusal.audio(voice)

    asyncio.run(calls())
    assert "not ready" in caplog.text


def test_a_cancelled_synthesis_is_left_to_the_next_call() -> None:
    async def calls() -> None:
        refusal, voice = Refusal("No."), Voice()
        first = asyncio.create_task(refusal.prepare(voice))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        await refusal.prepare(voice)
        assert refusal.audio(voice) and voice.asked == 2

    asyncio.run(calls())


def test_the_number_of_voices_is_bounded() -> None:
    async def calls() -> None:
        refusal, voices = Refusal("No."), [Voice() for _ in range(MAX_VOICES + 3)]
        for voice in voices:
            await refusal.prepare(voice)
        assert [refusal.audio(voice) is None for voice in voices] == [True] * 3 + [False] * MAX_VOICES

    asyncio.run(calls())


class Slow(Voice):
    """Takes 0.5 s for each sentence, and lists the sentences."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.stopped = 0

    async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        self.said.append(text)
        try:
            await asyncio.sleep(0.5)
            async for chunk in super().speak(text):
                yield chunk
        except asyncio.CancelledError:
            self.stopped += 1
            raise


def guard(words: str) -> Guard:
    return Guard(refusal=Refusal(words))


def test_refusal_of_the_next_agent_is_synthesised_at_the_hand_over() -> None:
    first, second = Slow(), Slow()
    before, after = guard("No."), guard("Never.")
    talk = Talk(tts=first, guard=before)

    def hand_over(session: Session) -> None:
        session.hand_over(replace(session.options, guard=after), replace(session.models, tts=second))

    talk.does(hand_over, at=2.0)
    talk.does(lambda session: session.configure(replace(session.options, instructions="Hm.")), at=2.1)
    talk.run(until=4.0)
    assert (first.said, second.said) == (["No."], ["Never."])
    assert after.refusal.audio(second) and not after.refusal.audio(first)


def test_only_the_newest_refusal_is_under_way_and_it_ends_with_the_call() -> None:
    voice = Slow()
    guards = [guard(f"No {number}.") for number in range(5)]
    talk = Talk(tts=voice, guard=None)

    def hand_over(one: Guard, session: Session) -> None:
        session.hand_over(replace(session.options, guard=one))

    for number, one in enumerate(guards):
        talk.does(partial(hand_over, one), at=1.0 + number / 10)
    talk.run(until=1.6)
    assert voice.said == [f"No {number}." for number in range(5)]
    assert voice.stopped == 5
    assert not any(one.refusal.audio(voice) for one in guards)


def test_voice_that_fails_in_a_way_of_its_own_does_not_end_the_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(ScriptedTts):
        def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
            if text == "No.":
                raise KeyError("voices")
            return super().speak(text)

    talk = Talk(tts=Broken(), guard=guard("No."))
    talk.says(0.6, at=1.0)
    talk.run(until=5.0)
    assert talk.done() == [(1, "completed", "Sunny.")]
    assert "the sentence for refused words was not synthesised: 'voices'" in caplog.text
