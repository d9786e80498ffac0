"""The text that a caller has heard, from returned marks: exact to the word, over real sockets."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import numpy as np
import pytest
from support.callers.carriers import SIMS, AsteriskSim, PlivoSim, TwilioSim
from support.callers.phone import Caller, calling, served
from support.patience import PATIENCE

from rejoinder.agent.wires.phone import protocol
from rejoinder.models.scripted import SECONDS_PER_CHARACTER

COUNT = " ".join(f"number {n:03}" for n in range(100, 200)) + "."
"""Words of two equal lengths: the scripted voice spreads them evenly, so that seconds are words."""
LAG = 1.0


def loud(sim: TwilioSim, seconds: float) -> bytes:
    """Return what is speech to the scripted voice activity."""
    noise = np.random.default_rng(0).normal(0.0, 6000.0, int(sim.rate * seconds))
    return bytes(noise.astype("<i2").tobytes())


def last_reply(program: Any) -> str:
    prompts = program.models.llm.prompts
    said = [message["content"] for message in prompts[-1] if message["role"] == "assistant"]
    return str(said[-1]) if said else ""


async def interrupted(program: Any, caller: Caller, seconds: float = 2.5) -> str:
    """Ask, interrupt after some seconds of the answer, and return the answer's text in the history."""
    caller.say(loud(caller.sim, 0.6))
    await caller.until(lambda: caller.seconds_heard > seconds)
    asked = len(program.models.llm.prompts)
    caller.say(loud(caller.sim, 1.5))
    await caller.until(lambda: len(program.models.llm.prompts) > asked)
    return last_reply(program)


def words_in(seconds: float) -> float:
    return seconds / (SECONDS_PER_CHARACTER * len("number 100 ")) * 2


@pytest.mark.parametrize("carrier", SIMS, ids=lambda sim: sim.name)
def test_history_has_the_text_played_to_the_caller(carrier: type[TwilioSim]) -> None:
    async def hold() -> None:
        async with (
            served(llm=f"scripted:llm|{COUNT}") as (program, url),
            calling(url, carrier(), LAG) as caller,
        ):
            told = await interrupted(program, caller)
            await caller.until(lambda: "clear" in caller.asked)
            assert told.endswith("—")
            # The paced clock is a second ahead of this ear, which is three words and a half.
            assert abs(len(told.split()) - words_in(caller.seconds_heard)) <= 1.5

    asyncio.run(hold())


def test_carrier_without_marks_uses_the_sessions_estimate() -> None:
    class Deaf(PlivoSim):
        def played(self, name: str) -> None:
            return None

    async def hold() -> None:
        async with served(llm=f"scripted:llm|{COUNT}") as (program, url), calling(url, Deaf()) as caller:
            told = await interrupted(program, caller)
            assert told.endswith("—")
            assert abs(len(told.split()) - words_in(caller.seconds_heard)) <= 2.5

    asyncio.run(hold())


def test_asterisk_pauses_and_plays_on_after_a_cough() -> None:
    async def hold() -> None:
        sim, word = AsteriskSim(), "m" * 100  # one clause is one tone
        async with served(llm=f"scripted:llm|{word}", stt="scripted:stt|what is it|mm-hm") as (_, url):
            async with calling(url, sim, lag=0.5) as caller:
                caller.say(loud(sim, 0.6))
                await caller.until(lambda: caller.seconds_heard > 1.0)
                caller.say(loud(sim, 0.3))
                await caller.until(lambda: "hold" in caller.asked)
                await caller.until(lambda: "release" in caller.asked)
                heard = caller.seconds_heard
                await caller.until(lambda: caller.seconds_heard > heard + 1.0)
                assert caller.asked == ["hold", "release"]
                tone = bytes(caller.ear)
                assert smooth(tone), "not a sample is lost or comes twice"

    asyncio.run(hold())


def smooth(pcm: bytes) -> bool:
    """Tell whether a tone of 220 Hz at 16 kHz goes on without a jump."""
    samples = np.frombuffer(pcm, "<i2").astype(float)[400:]
    return bool(np.abs(np.diff(samples)).max() < 1.2 * 0.3 * 32768 * 2 * np.pi * 220 / 16000)


@pytest.mark.parametrize("carrier", SIMS, ids=lambda sim: sim.name)
def test_keys_interrupt_and_are_answered(carrier: type[TwilioSim]) -> None:
    async def hold() -> None:
        sim = carrier()
        async with (
            served(llm=f"scripted:llm|{COUNT}|You did.") as (program, url),
            calling(url, sim) as caller,
        ):
            prompts = program.models.llm.prompts
            caller.say(loud(sim, 0.6))
            await caller.until(lambda: caller.seconds_heard > 1.0)
            for key in "42":
                await caller.socket.send(sim.digit(key))
            await asyncio.sleep(0.5)
            silent = caller.seconds_heard
            await caller.socket.send(sim.digit("#"))
            await caller.until(lambda: "keypad" in prompts[-1][-1]["content"])
            assert prompts[-1][-1]["content"] == "(pressed 42 on the keypad)"
            assert last_reply(program).endswith("—")
            await caller.until(lambda: caller.seconds_heard > silent)
            await caller.socket.send(sim.digit("7"))
            await caller.until(lambda: "(pressed 7 on the keypad)" in prompts[-1][-1]["content"])

    asyncio.run(hold())


def test_messages_have_50_ms_and_marks_are_100_to_500_ms_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine makes audio late, which would be flushed.
    monkeypatch.setattr(protocol, "FLUSH_SECONDS", PATIENCE)

    async def hold() -> None:
        async with served(llm="scripted:llm|Well, this is so.") as (_, url):
            async with calling(url, TwilioSim()) as caller:
                caller.say(loud(caller.sim, 0.6))
                await caller.until(lambda: caller.seconds_heard > 0.9)
                await caller.until(lambda: caller.returned and caller.returned[-1] > "1-10")
                lengths = [size / 16 for size in caller.sizes]
                assert min(lengths[:-1]) >= 50 and len(lengths) > 5
                places = [int(name.split("-")[1]) for name in caller.returned]
                apart = [later - earlier for earlier, later in zip([0, *places], places, strict=False)]
                assert all(100 <= ms <= 500 for ms in apart[:-1]), apart

    asyncio.run(hold())


def test_parameters_reach_the_agent_and_it_can_speak_first() -> None:
    class Informed(TwilioSim):
        parameters: ClassVar = {"greet": "true", "instructions": "Be brief.", "name": "Ada\ud800"}

    async def hold() -> None:
        async with (
            served(llm="scripted:llm|Hello Ada.") as (program, url),
            calling(url, Informed()) as caller,
        ):
            await caller.until(lambda: caller.seconds_heard > 0.4)
            prompt = program.models.llm.prompts[-1]
            assert prompt[0]["content"] == "Be brief.\nAbout this call:\nname: Ada?"

    asyncio.run(hold())
