"""The turns that a replica keeps, and the deadlines that come with requests."""

from __future__ import annotations

import asyncio

import pytest

from rejoinder.models.ray import replicas
from rejoinder.models.ray.messages import Missing, TurnAudio, Work, work
from rejoinder.models.ray.replicas import RemoteTurns
from rejoinder.models.scripted import ScriptedStt
from rejoinder.pipeline.engines import call_id, deadline
from rejoinder.pipeline.engines.deadline import Deadline

NOW = Work(None, False, False, "")


def audio(session: str, turn: int, at: int, samples: int) -> TurnAudio:
    return TurnAudio(session, turn, at, 0, bytes(2 * samples), False, NOW)


def test_a_silent_session_is_dropped_and_asks_for_its_audio_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "SILENT_S", 1.0)
    stt = ScriptedStt(["hello"], seconds=0.0)

    async def use() -> None:
        turns = RemoteTurns(stt.stream)
        assert not isinstance(await turns.of("a").transcribe(audio("a", 0, 0, 1600)), Missing)
        assert len(turns) == 1
        async with asyncio.timeout(20):
            while len(turns):  # noqa: ASYNC110 - a timer drops it
                await asyncio.sleep(0.01)
        assert await turns.of("a").transcribe(audio("a", 0, 1600, 1600)) == Missing(0)
        for number in range(3):
            turns.of(str(number))
        assert len(turns) == 4

    asyncio.run(use())


def test_a_replica_keeps_a_bounded_number_of_sessions() -> None:
    async def use() -> None:
        turns = RemoteTurns(ScriptedStt(["hello"]).stream, most=2)
        kept = turns.of("a")
        turns.of("b")
        assert turns.of("a") is kept
        turns.of("c")
        assert len(turns) == 2 and turns.of("a") is kept

    asyncio.run(use())


def test_seconds_left_run_down_in_the_replica_and_audio_adds_to_them() -> None:
    async def use() -> None:
        loop = asyncio.get_running_loop()
        deadline.current.set(Deadline(due=loop.time() + 2.0, frugal=True))
        call_id.current.set("call_1")
        sent = work()
        assert sent.is_due and sent.left == pytest.approx(2.0, abs=0.5) and sent.frugal
        deadline.current.set(None)
        call_id.current.set("")
        with sent.applied():
            here = deadline.current.get()
            assert here and here.due and here.frugal and call_id.current.get() == "call_1"
            assert here.left(loop.time() + 1.0) == pytest.approx(1.0, abs=0.5)
        assert deadline.current.get() is None
        due = here.due
        sent.later(1.5)
        with sent.applied():
            assert deadline.current.get() is here and here.due == due + 1.5

    asyncio.run(use())


def test_a_guess_stays_a_guess() -> None:
    async def use() -> None:
        deadline.current.set(Deadline(slack=0.25))
        sent = work()
        assert (sent.left, sent.is_due) == (0.25, False)
        sent.later(5.0)
        with sent.applied():
            here = deadline.current.get()
            assert here and here.due is None and here.left(1e9) == 0.25
        deadline.current.set(None)
        with work().applied():
            assert deadline.current.get() is None

    asyncio.run(use())
