"""What a session owes its user, which is judged from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from rejoinder.agent.simulate.caller import Caller
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedSttStream
from rejoinder.pipeline import Options, Session, Transcript


class Deaf(ScriptedStt):
    """A recogniser that never answers."""

    def stream(self) -> ScriptedSttStream:
        return DeafStream(self)


class DeafStream(ScriptedSttStream):
    async def transcribe(self, is_final: bool) -> Transcript:
        await asyncio.sleep(1e6)
        raise AssertionError


def noting(owed: list[bool]) -> Callable[[Session], None]:
    return lambda session: owed.append(session.owes)


def test_reply_is_owed_from_the_end_of_the_turn_to_its_own() -> None:
    owed: list[bool] = []
    note, slow = noting(owed), ScriptedLlm(["Yes, it is."], first=20.0)
    caller = Caller(slow, Options(instructions="")).does(note).says("is it?").does(note).waits(5.0).does(note)
    call = caller.hears_out().waits(1.0).does(note).call()
    assert owed == [False, False, True, False]
    assert call.heard == ["Yes, it is."]


def test_words_of_a_pause_are_owed() -> None:
    owed: list[bool] = []
    caller = Caller(ScriptedLlm(["Yes."]), Options(instructions=""), stt=Deaf([])).says("is it?")
    caller.waits(5.0).does(noting(owed)).call()
    assert owed == [True]


def test_guess_is_dropped_where_replies_are_turned_off() -> None:
    owed: list[bool] = []

    def turn_off(session: Session) -> None:
        session.configure(replace(session.options, create_response=False))

    caller = Caller(ScriptedLlm(["Yes."]), Options(instructions="", speculate=True)).says("is it?")
    call = caller.pauses(0.12).does(turn_off).waits(3.0).does(noting(owed)).call()
    assert owed == [False] and call.heard == []
