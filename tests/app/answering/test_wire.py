"""A mailbox answers over a carrier's wire: the message comes after the beep, then the agent hangs up."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import numpy as np
import pytest
from support.callers.carriers import TwilioSim
from support.callers.phone import Caller, calling, served
from websockets.exceptions import ConnectionClosed

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.answering.who_answered import CallAnswer
from rejoinder.agent.app.call import Call

pytestmark = pytest.mark.server


def sound(rate: int) -> tuple[bytes, bytes]:
    """Return a mailbox's greeting as a sound that the scripted models hear as speech, and its beep."""
    spoken = np.random.default_rng(0).normal(0.0, 6000.0, int(2.5 * rate))
    beep = 500 * np.sin(2 * np.pi * 1000 * np.arange(int(0.4 * rate)) / rate)
    parts = [spoken, np.zeros(rate), beep]
    return np.concatenate(parts[:2]).astype("<i2").tobytes(), parts[2].astype("<i2").tobytes()


def test_message_is_left_over_the_carriers_wire() -> None:
    agent: Agent[None, None] = Agent(greeting="This is Mario's.")
    answers: list[CallAnswer] = []
    ended: list[str] = []

    @agent.on_call
    def prepare(call: Call) -> None:
        call.detect_machine()

    @agent.on_answered_by
    async def leave(call: Call, answer: CallAnswer) -> None:
        answers.append(answer)
        assert await call.leave_message("Your table is ready."), "the beep was heard"

    @agent.on_end
    def note(call: Call) -> None:
        ended.append(call.ended)

    async def hold() -> None:
        said = "scripted:stt|you have reached tom please leave a message after the tone"
        async with served(agent=agent, stt=said) as (_, url):
            with suppress(ConnectionClosed):  # the agent hangs up
                async with calling(url, TwilioSim()) as caller:
                    await talk(caller)

    async def talk(caller: Caller) -> None:
        greeting, beep = sound(caller.sim.rate)
        caller.say(greeting)
        await asyncio.sleep(len(greeting) / 2 / caller.sim.rate)
        assert not caller.ear, "the agent is silent while the machine speaks"
        caller.say(beep)
        await caller.until(lambda: caller.ear)
        assert not caller._mouth, "and until the beep has ended"
        await caller.until(lambda: ended)
        assert caller.seconds_heard > 1.0

    asyncio.run(hold())
    assert [answer.by for answer in answers] == ["voicemail"] and ended == ["left a message"]
