"""The bench of who answered: its greetings, its calls and its figures."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from support import speech

from rejoinder.agent.app.answering.beep import BeepDetector
from rejoinder.agent.app.answering.phrases import AnsweredBy
from rejoinder.agent.bench.answered import calls as bench_calls
from rejoinder.agent.bench.answered import greetings as bench_greetings
from rejoinder.agent.bench.answered.calls import AnsweredCall
from rejoinder.agent.bench.answered.report import interval, summary
from rejoinder.agent.bench.cases.recordings import speech_folder
from rejoinder.agent.simulate import virtual_clock
from rejoinder.pipeline import RATE, AudioChunk, to_pcm
from rejoinder.pipeline.audio.resample import ToSession


def test_texts_that_judge_are_not_those_that_fit() -> None:
    fit, judge = bench_greetings.texts("fit"), bench_greetings.texts("judge")
    assert fit.keys() == judge.keys()
    said = {text.lower().strip(".?!") for texts in fit.values() for text in texts}
    both = [text for texts in judge.values() for text in texts if text.lower().strip(".?!") in said]
    assert both == ["Hello.", "Hello?"], "people have only so many ways to say hello"


def test_interval_is_wilsons() -> None:
    """Values of statsmodels.stats.proportion.proportion_confint(method="wilson")."""
    assert interval(95, 100) == pytest.approx((0.8882, 0.9785), abs=1e-4)
    assert interval(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert interval(0, 0) == (0.0, 1.0)


def call(kind: str, first: str, last: str, began: float | None = None) -> AnsweredCall:
    kinds = AnsweredBy(kind), AnsweredBy(first), AnsweredBy(last)
    return AnsweredCall(kinds[0], "", False, kinds[1], kinds[2], "", 2.0, 0.5, True, began, "")


def test_people_and_machines_are_counted_by_the_last_answer() -> None:
    made = [
        call("human", "human", "human"),
        call("human", "unknown", "unknown"),
        call("human", "human", "voicemail"),
        call("voicemail", "human", "voicemail", 0.3),
        call("voicemail", "voicemail", "voicemail", -0.1),
        call("ivr", "human", "human"),
    ]
    found = summary(made)
    assert found["humans_kept"] == pytest.approx(2 / 3)
    assert found["machines_caught"] == pytest.approx(2 / 3)
    assert found["messages"] == "1 of 2 after the beep, 1 before"


def test_beeps_of_the_line_are_where_the_greeting_says() -> None:
    speech.recordings("an4")
    noises = bench_greetings.noises(speech_folder())
    people = bench_greetings.recorded(speech_folder(), ["an4"], noises, seed=0)
    assert len(people) == len({person.name.split("-")[1] for person in people}), "one of each speaker"
    assert all(person.beep is None for person in people)


@pytest.mark.weights
def test_call_with_a_mailbox() -> None:
    """A real call in virtual time: the words of a voice, a beep, and a message behind it."""
    speech.need("hibari:heart", *bench_calls.LISTENING)

    async def hold() -> AnsweredCall:
        found = await bench_calls.measure([mailbox], lambda call: None)
        return found[0]

    quiet = [np.full(8_000, 1e-4, np.float32)]
    made = asyncio.run(bench_greetings.synthesised("fit", ["hibari:heart"], quiet, 0))
    mailbox = next(each for each in made if each.beep and "after the beep" in each.name)
    audio = ToSession(8_000).feed(AudioChunk(to_pcm(mailbox.audio), 8_000))
    (beep,) = BeepDetector().feed(audio)
    assert beep.end / RATE == pytest.approx(mailbox.beep, abs=0.04)
    found = virtual_clock.run(hold())
    assert (found.first, found.last) == ("voicemail", "voicemail")
    assert found.began is not None and 0.1 < found.began < 0.6
