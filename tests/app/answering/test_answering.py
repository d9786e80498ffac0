"""An agent's outgoing calls in virtual time: it waits, learns who answered, and leaves messages."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.answering.message_start import NO_BEEP_S
from rejoinder.agent.app.answering.who_answered import CallAnswer
from rejoinder.agent.app.call import Call
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.pipeline import RATE, OverlapEnded, ReplyAudio, ReplyDone, ReplyStarted

BEEP = (0.015 * 32767 * np.sin(2 * np.pi * 1000 * np.arange(320) / RATE)).astype("<i2").tobytes()
"""20 ms of a beep, softer than what the scripted voice activity detection takes for speech."""
MAILBOX = "you have reached tom please leave a message after the tone"
MESSAGE = "Your table is ready."


def calling(
    *lines: str, hold_s: float = 6.0, greeting: str = "This is Mario's.", **hooks: Any
) -> tuple[Talk, list[CallAnswer]]:
    """Return a call of an agent that finds out who answers, and the answers that its hook gets."""
    agent: Agent[None, None] = Agent(greeting=greeting)
    answers: list[CallAnswer] = []

    @agent.on_call
    def prepare(call: Call) -> None:
        call.detect_machine(hold_s)

    @agent.on_answered_by
    async def note(call: Call, answer: CallAnswer) -> None:
        answers.append(answer)
        if answer.by == "voicemail":
            await call.leave_message(MESSAGE, **hooks)

    return Talk(*lines, agent=agent), answers


def heard(talk: Talk) -> list[str]:
    return [done.heard for done in talk.of(ReplyDone) if done.heard]


def first_sound(talk: Talk) -> float:
    return talk.when(ReplyAudio)[0]


def test_agent_speaks_first_once_a_person_has_answered() -> None:
    talk, answers = calling("hello?")
    talk.says(0.5, at=0.6)
    talk.run(5.0)
    assert [answer.by for answer in answers] == ["human"] and talk.call.answered_by == "human"
    assert heard(talk) == ["This is Mario's."]
    assert 1.6 < first_sound(talk) < 2.2


def test_level_of_a_machine_is_not_the_callers() -> None:
    talk, answers = calling("hello?")
    talk.says(0.5, at=0.6)
    talk.run(5.0)
    assert answers and talk.session.floor.caller.level is None


def test_agent_waits_no_longer_than_it_was_told() -> None:
    talk, answers = calling("well", hold_s=2.0)
    talk.says(3.0, at=0.6)
    talk.run(8.0)
    assert [answer.by for answer in answers] == ["human"]
    assert heard(talk)[0] == "This is Mario's." and first_sound(talk) < 4.5


def test_agent_that_does_not_wait_greets_at_once() -> None:
    talk, answers = calling("hello?", hold_s=0.0)
    talk.says(0.5, at=2.5)
    talk.run(6.0)
    assert heard(talk)[0] == "This is Mario's." and first_sound(talk) < 0.2
    assert [answer.by for answer in answers] == ["human"]


def test_sound_under_which_the_agent_speaks_on_is_not_over() -> None:
    talk, answers = calling("mm-hm", hold_s=0.0, greeting="This is Mario's. Your table for two is ready.")
    talk.says(1.2, at=0.4)
    talk.run(6.0)
    assert not talk.of(OverlapEnded)[0].is_over
    assert [answer.by for answer in answers] == ["human"] and answers[0].at > 1.6 * RATE


def test_agent_speaks_to_a_silent_line() -> None:
    talk, answers = calling()
    talk.run(8.0)
    assert [answer.by for answer in answers] == ["unknown"]
    assert heard(talk) == ["This is Mario's."] and 5.0 < first_sound(talk) < 5.3


def test_line_without_audio_is_unknown() -> None:
    talk, answers = calling()
    talk.run(60.0, microphone=False)
    assert [answer.by for answer in answers] == ["unknown"] and "no more audio" in answers[0].reason
    assert heard(talk) == ["This is Mario's."] and 6.0 < first_sound(talk) < 6.2


@pytest.mark.parametrize("beep_at", [4.7, 5.5, 6.9])
def test_message_is_left_after_the_beep(beep_at: float) -> None:
    talk, answers = calling(MAILBOX)
    talk.says(4.0, at=0.5)
    talk.says(0.4, at=beep_at, sound=BEEP)
    talk.run(14.0)
    assert [answer.by for answer in answers] == ["voicemail"]
    assert heard(talk) == [MESSAGE], "exactly these words, and once"
    assert beep_at + 0.4 < first_sound(talk) < beep_at + 0.9
    assert talk.call.ended == "left a message"


def test_message_is_left_on_a_machine_without_beep() -> None:
    talk, _ = calling(MAILBOX)
    talk.says(4.0, at=0.5)
    talk.run(14.0)
    assert heard(talk) == [MESSAGE] and 4.5 + NO_BEEP_S < first_sound(talk) < 4.5 + NO_BEEP_S + 0.4


def test_message_begins_again_where_the_beep_comes_into_it() -> None:
    talk, _ = calling(MAILBOX, hang_up=False)
    talk.says(4.0, at=0.5)
    talk.says(0.4, at=8.4, sound=BEEP)
    talk.run(14.0)
    assert heard(talk)[-1] == MESSAGE and len(heard(talk)) == 2


def test_sound_of_the_machine_does_not_cut_the_message() -> None:
    talk, _ = calling(MAILBOX, "thank you")
    talk.says(4.0, at=0.5)
    talk.says(0.4, at=5.0, sound=BEEP)
    talk.says(0.8, at=6.0)
    talk.run(14.0)
    assert heard(talk)[0] == MESSAGE


def test_message_needs_no_detection() -> None:
    agent: Agent[None, None] = Agent()
    left: list[bool] = []

    @agent.on_turn
    async def answer(call: Call, words: str) -> None:
        left.append(await call.leave_message(MESSAGE))

    talk = Talk("hello", agent=agent)
    talk.says(0.6, at=0.5)
    talk.says(0.4, at=3.0, sound=BEEP)
    talk.run(9.0)
    assert left == [True] and heard(talk)[-1] == MESSAGE
    assert talk.when(ReplyStarted)[-1] > 3.4


def test_agent_answers_a_menu_without_its_greeting() -> None:
    talk, answers = calling("for sales press one")
    talk.says(1.5, at=0.6)
    talk.run(6.0)
    assert [answer.by for answer in answers] == ["ivr"]
    assert heard(talk) == ["Sunny."], "the language model reads the menu"


def test_second_message_at_a_time_is_an_error() -> None:
    agent: Agent[None, None] = Agent()
    errors: list[str] = []

    @agent.on_turn
    async def leave_two(call: Call, words: str) -> None:
        first = asyncio.create_task(call.leave_message(MESSAGE))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError) as error:
            await call.leave_message(MESSAGE)
        errors.append(str(error.value))
        await first

    talk = Talk("hello", agent=agent)
    talk.says(0.6, at=0.5)
    talk.run(9.0)
    assert errors == ["a message is being left already: wait until it has played"]


def test_coroutine_waits_for_who_answered() -> None:
    agent: Agent[None, None] = Agent()
    found: list[CallAnswer] = []
    waiting: list[asyncio.Task[None]] = []

    @agent.on_call
    async def prepare(call: Call) -> None:
        with pytest.raises(RuntimeError, match="use detect_machine"):
            await call.who_answered()
        call.detect_machine()

        async def wait() -> None:
            found.append(await call.who_answered())

        waiting.append(asyncio.create_task(wait()))

    talk = Talk("press one for sales", agent=agent)
    talk.says(1.5, at=0.5)
    talk.run(5.0)
    assert [answer.by for answer in found] == ["ivr"]
    with pytest.raises(RuntimeError, match="in on_call"):
        talk.call.detect_machine()


def test_calls_without_detection_are_not_tapped() -> None:
    taps: list[object] = []
    agent: Agent[None, None] = Agent()
    talk = Talk(agent=agent)
    talk.says(0.5, at=0.5)
    talk.does(lambda session: taps.append(session.tap), at=1.0)
    talk.run(2.0)
    assert taps == [None]


def test_tap_ends_once_all_is_decided() -> None:
    talk, _ = calling("hello?")
    taps: list[object] = []
    talk.says(0.5, at=0.6)
    talk.does(lambda session: taps.append(session.tap), at=10.0)
    talk.does(lambda session: taps.append(session.tap), at=21.0)
    talk.run(22.0)
    assert taps[0] is not None and taps[1] is None
