"""Conversations in virtual time with a microphone that hears the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.echoes import babble, room

from rejoinder.agent.simulate.scenario import CHUNK_SECONDS, SCENARIO_ENDPOINTING, Talk
from rejoinder.models.scripted import SECONDS_PER_CHARACTER
from rejoinder.pipeline import (
    RATE,
    AudioChunk,
    EndOfTurn,
    NothingSaid,
    OverlapEnded,
    OverlapStarted,
    ReplyAudio,
    Session,
    SpeechStarted,
)
from rejoinder.pipeline.audio.chunk import Samples, to_float, to_pcm

STORY = " ".join(f"On day {day} the ship sailed on to an island." for day in ("one", "two", "three", "four"))
EVERY_VOICE = replace(SCENARIO_ENDPOINTING, speakers="many")
"""With "one", an echo far below the caller is a voice in the background: the gate would not be tested."""
OPTIONS = {"replies": (STORY, "Fine."), "echo_gate": True, "endpointing": EVERY_VOICE}


class Babbler:
    """A voice that sounds like speech to a filter: bursts of noise instead of a hum."""

    open = 0

    async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        yield AudioChunk(to_pcm(babble(len(text) * SECONDS_PER_CHARACTER, seed=len(text))), RATE)


class OpenSpeaker(Talk):
    """A caller whose microphone hears what it plays, ``delay`` seconds later, at ``level`` decibels."""

    def __init__(self, *lines: str, level: float = -6.0, delay: float = 0.3, **more: Any) -> None:
        super().__init__(*lines, tts=Babbler(), **{**OPTIONS, **more})
        self._response = room() * 10 ** (level / 20)
        self._delay = int(delay * RATE)
        self._air: Samples = np.zeros(60 * RATE, np.float32)
        self._dry = 0

    async def _note(self, session: Session) -> None:
        loop = asyncio.get_running_loop()
        async for event in session.events:
            now = int(loop.time() * RATE)
            self.log.append((loop.time(), event))
            self.look()
            self.ear.take(event, loop.time())
            if isinstance(event, ReplyAudio):
                begin = max(self._dry, now)
                played = np.convolve(event.chunk.samples(), self._response)
                self._air[begin + self._delay : begin + self._delay + len(played)] += played
                self._dry = begin + len(event.chunk)
            elif isinstance(event, SpeechStarted):
                self._air[now + self._delay + len(self._response) :] = 0.0
                self._dry = now

    async def _speak(self) -> None:
        hear, loop = self.session.hear, asyncio.get_running_loop()

        async def mixed(pcm: bytes) -> None:
            end = round(loop.time() * RATE)
            await hear(to_pcm(to_float(pcm) + self._air[end - len(pcm) // 2 : end]))

        assert CHUNK_SECONDS * RATE == 320
        self.session.hear = mixed  # type: ignore[method-assign]
        await super()._speak()


def story(*lines: str, **more: Any) -> OpenSpeaker:
    talk = OpenSpeaker("tell me a story", *lines, **more)
    talk.says(1.2, at=0.2)
    return talk


@pytest.mark.parametrize("level", [0.0, -6.0, -12.0])
@pytest.mark.parametrize("gate", [True, False])
def test_an_agent_that_hears_itself(level: float, gate: bool) -> None:
    """Without the gate it stops: so this is a test of the gate."""
    talk = story("never mind", level=level, echo_gate=gate).run(until=16.0)
    (_, status, heard) = talk.done()[0]
    assert (status, heard == STORY) == (("completed", True) if gate else ("cancelled", False))
    assert (len(talk.of(EndOfTurn)) == 1) is gate
    assert (len(talk.of(SpeechStarted)) == 1) is gate
    assert len(talk.of(NothingSaid)) == 0


@pytest.mark.parametrize("delay", [0.05, 0.45])
def test_speech_over_the_echo_is_an_interruption(delay: float) -> None:
    talk = story("never mind", delay=delay)
    talk.says(0.6, at=6.0)
    talk.run(until=12.0)
    assert 6.0 < talk.when(OverlapStarted)[-1] < 6.2
    assert talk.done()[0][1] == "cancelled"
    assert [event.text for event in talk.of(EndOfTurn)] == ["tell me a story", "never mind"]


def test_a_noise_over_the_echo_is_no_interruption() -> None:
    talk = story("(coughs)", holds_audio=True)
    talk.says(0.3, at=6.0)
    talk.run(until=18.0)
    assert talk.done() == [(1, "completed", STORY)]
    assert talk.of(OverlapEnded)


def test_the_agents_own_words_are_no_interruption_and_no_turn() -> None:
    """The last net: a sound that comes through, in which the recogniser finds what the agent says."""
    talk = story("the ship sailed on")
    talk.says(0.6, at=6.0)
    talk.run(until=16.0)
    assert talk.of(OverlapStarted)
    assert talk.done() == [(1, "completed", STORY)]
    assert len(talk.of(EndOfTurn)) == 1


def test_the_same_words_through_a_headset_are() -> None:
    talk = story("the ship sailed on", level=-80.0, replies=(STORY * 3, "Fine."))
    talk.says(0.6, at=16.0)
    talk.run(until=24.0)
    assert talk.done()[0][1] == "cancelled"
    assert [event.text for event in talk.of(EndOfTurn)][1] == "the ship sailed on"


def test_the_end_of_the_echo_opens_no_turn() -> None:
    talk = story("never mind", delay=0.5, level=0.0).run(until=16.0)
    assert len(talk.of(SpeechStarted)) == len(talk.of(EndOfTurn)) == 1
