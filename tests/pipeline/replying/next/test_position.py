"""Where the end of a session cuts its reply off, and how another process goes on, in virtual time."""

from __future__ import annotations

import asyncio

from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.scenario import Talk, sleep_until
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import ReplyRequest
from rejoinder.pipeline.replying.next.position import LOST_CUE, ReplyPosition

WEATHER = "It is sunny today. Take a hat, if you go out."


def closed(talk: Talk, at: float, stopped: float | None = None) -> ReplyPosition:
    """Return the position that a server writes some time after it closed the session at this second.

    stopped: when the client stopped the reply, None for a reply that it let speak.
    """
    talk.says(1.2, at=0.2)

    async def listen() -> None:
        if stopped is not None:
            await sleep_until(stopped)
            talk.session.interrupt()
        await sleep_until(at)

    async def hold() -> ReplyPosition:
        await talk.converse(listen)
        await asyncio.sleep(1.0)
        position = talk.session.position()
        assert position is not None
        return position

    return virtual_clock.run(hold())


def test_the_rest_of_a_reply_is_said_elsewhere() -> None:
    position = closed(Talk(replies=(WEATHER,)), at=2.2)
    assert position.heard == "It is", "what was sent and not yet played is not heard"
    assert position.requests(position.heard) == [
        ReplyRequest(words="sunny today. Take a hat, if you go out.")
    ]


def test_the_rest_of_a_reply_that_the_model_was_writing_is_asked_for() -> None:
    position = closed(Talk(llm=ScriptedLlm([WEATHER], each=0.3)), at=4.0)
    assert position.heard
    assert position.requests(position.heard)[-1] == ReplyRequest(cue=LOST_CUE)


def test_a_question_whose_answer_had_not_begun_is_answered_elsewhere() -> None:
    position = closed(Talk(llm=ScriptedLlm([WEATHER], first=9.0)), at=3.0)
    assert position.requests(position.heard) == [ReplyRequest()]


def test_a_reply_that_was_stopped_before_stays_stopped() -> None:
    position = closed(Talk(replies=(WEATHER,)), at=2.3, stopped=2.2)
    assert position.requests(position.heard) == []
