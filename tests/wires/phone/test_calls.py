"""Telephone calls over real sockets: every carrier's wire, real recordings, and the models as they ship.

The models as they ship answer two carriers: one with mu-law at 8 kHz, one with 16-bit PCM at 16 kHz. Scripted
models answer the others, and the audio of both directions is compared with what was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import soxr
from support import speech
from support.callers.carriers import SIMS, TwilioSim, VonageSim
from support.callers.phone import REAL, Caller, calling, plain, question, served, transcribed

from rejoinder.agent.server.server import Server
from rejoinder.models.scripted import SECONDS_PER_CHARACTER, ScriptedSttStream
from rejoinder.pipeline import RATE, AudioChunk
from rejoinder.pipeline.audio.chunk import Samples, to_float

STORY = " ".join(
    [
        "Every morning the old fisherman took his small boat out to the island.",
        "He stayed there until the evening, and he sang all day long.",
        "The gulls knew his songs. The children waited for him on the beach.",
    ]
    * 4
)
"""Goes on for long, however late a busy machine hears the caller."""


WITH_REAL_MODELS: list[type[TwilioSim]] = [TwilioSim, VonageSim]
WITH_SCRIPTED_MODELS = [sim for sim in SIMS if sim not in WITH_REAL_MODELS]


Office = tuple[asyncio.Runner, Server, str]
"""The loop that serves several calls, the program, and the address of its phone."""


def open_office(**models: str) -> Iterator[Office]:
    """Serve with these models, else with scripted ones."""
    with asyncio.Runner() as runner:
        serving = served(**models, llm=f"scripted:llm|{STORY}")
        yield runner, *runner.run(serving.__aenter__())
        runner.run(serving.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def office() -> Iterator[Office]:
    speech.need(*REAL.values())
    yield from open_office(**REAL)


@pytest.fixture(scope="module")
def scripted_office() -> Iterator[Office]:
    yield from open_office()


def last_answer(prompts: list[list[Any]]) -> str:
    """Return what the last prompt has of the agent's last reply."""
    said = [message["content"] for message in prompts[-1] if message["role"] == "assistant"]
    return str(said[-1]) if said else ""


async def asked_and_interrupted(caller: Caller, prompts: list[list[Any]]) -> tuple[str, bytes]:
    """Ask, hear three seconds of the answer, and interrupt it.

    Return what the history has of the answer, and the PCM that was heard of it.
    """
    said = question(caller.sim.rate)
    caller.say(said)
    await caller.until(lambda: caller.seconds_heard > 3.0)
    assert "weather" in prompts[-1][-1]["content"].lower()
    assert caller.returned, "marks are asked for"
    asked = len(prompts)  # on a busy machine the clear comes with the end of the turn
    caller.asked.clear()  # a guess that the user went on speaking after has cleared too
    caller.say(said)
    await caller.until(lambda: "clear" in caller.asked)
    heard = bytes(caller.ear)
    await caller.until(lambda: len(prompts) > asked and last_answer(prompts).endswith("—"))
    told = last_answer(prompts)
    assert told.endswith("—"), "the history knows that it was cut"
    return told, heard


@pytest.mark.weights
@pytest.mark.realtime  # the answer has to be still playing when the interruption is understood
@pytest.mark.parametrize("carrier", WITH_REAL_MODELS, ids=lambda sim: sim.name)
def test_caller_asks_and_interrupts(office: Office, carrier: type[TwilioSim]) -> None:
    runner, program, url = office
    prompts = program.models.llm.prompts  # type: ignore[union-attr]
    prompts.clear()

    async def hold() -> None:
        sim = carrier()
        # What is on its way when the agent knows that it is interrupted has to be cleared.
        async with calling(url, sim, lag=1.0) as caller:
            told, heard = await asked_and_interrupted(caller, prompts)
            # The recogniser makes up the end of a word that is cut; test_marks.py counts there.
            really = plain(await transcribed(program, heard, sim.rate)).split()
            assert len(told.split()) > 8 and len(really) > 8
            assert speech.word_error_rate([" ".join(told.split()[:8])], [" ".join(really[:8])]) <= 0.25
        await caller.until(lambda: not program.calls)

    runner.run(hold())


def likeness(part: Samples, whole: Samples) -> float:
    """Return the correlation of ``part`` with the stretch of ``whole`` that it is most like."""
    padded = np.pad(whole, len(part))
    size = 1 << (len(padded) + len(part)).bit_length()
    at = int(np.argmax(np.fft.irfft(np.fft.rfft(padded, size) * np.fft.rfft(part, size).conj(), size)))
    return float(np.corrcoef(part, padded[at : at + len(part)])[0, 1])


@pytest.mark.parametrize("carrier", WITH_SCRIPTED_MODELS, ids=lambda sim: sim.name)
def test_caller_asks_and_interrupts_scripted_models(
    scripted_office: Office,
    carrier: type[TwilioSim],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner, program, url = scripted_office
    prompts = program.models.llm.prompts  # type: ignore[union-attr]
    prompts.clear()
    fed: list[AudioChunk] = []
    feed = ScriptedSttStream.feed

    def noted(self: ScriptedSttStream, chunk: AudioChunk) -> None:
        fed.append(chunk)
        feed(self, chunk)

    monkeypatch.setattr(ScriptedSttStream, "feed", noted)

    async def hold() -> None:
        sim = carrier()
        async with calling(url, sim, lag=1.0) as caller:
            told, heard = await asked_and_interrupted(caller, prompts)
        await caller.until(lambda: not program.calls)
        said = soxr.resample(to_float(question(sim.rate)), sim.rate, RATE)
        recognised = np.zeros(max(chunk.end for chunk in fed), np.float32)
        for chunk in fed:
            recognised[chunk.start : chunk.end] = chunk.samples()
        assert likeness(recognised[: len(said) // 2], said) > 0.99, "the recogniser gets what was said"
        assert len(told.split()) > 8 and STORY.startswith(told.removesuffix("—"))
        # The scripted voice is a tone of 220 Hz, which is quiet for a twentieth of the time.
        tone = to_float(heard)
        power = np.abs(np.fft.rfft(tone)) ** 2
        near = np.abs(np.fft.rfftfreq(len(tone), 1 / sim.rate) - 220) < 20
        assert power[near].sum() > 0.98 * power.sum()
        eight_words = len(" ".join(told.split()[:8])) * SECONDS_PER_CHARACTER
        assert np.count_nonzero(np.abs(tone) > 0.02) / sim.rate > 0.95 * eight_words

    runner.run(hold())
