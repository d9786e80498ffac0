"""The watch of engines: it gives up steps that hang, and probes models whose engines fail."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from rejoinder.agent.server.operating import engine_watch as module
from rejoinder.agent.server.operating.engine_watch import EngineWatch
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedVad
from rejoinder.models.tts.voice import Piece, Voice
from rejoinder.pipeline import ModelError, Models
from rejoinder.pipeline.engines import call_id
from rejoinder.pipeline.engines.engine import FAILURES_IN_A_ROW, Engine
from rejoinder.pipeline.engines.load_shedding import LoadShedder
from rejoinder.pipeline.engines.steps import LEAST_SLOW_SECONDS, LEAST_STEPS


def watched(voice: Voice) -> Models:
    engines = LoadShedder([voice.engine])
    return Models(ScriptedVad(), ScriptedStt(["hello"]), ScriptedLlm(), voice, None, engines)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(20.0):
        while not true():  # noqa: ASYNC110 - threads have no events of the loop
            await asyncio.sleep(0.01)


def waits_for_the_gpu(released: threading.Event) -> None:
    released.wait(20.0)


@pytest.mark.parametrize("gives_up", [True, False])
def test_step_that_hangs_is_named_with_its_call(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, gives_up: bool
) -> None:
    """Without a limit it is named only, and goes on."""
    monkeypatch.setattr(module, "STEP_SECONDS", 0.05)
    released = threading.Event()

    def step(items: Sequence[int]) -> Sequence[int]:
        if 0 in items:
            waits_for_the_gpu(released)
        return items

    async def main() -> None:
        voice = Voice("whisper", 16_000, lambda text: iter(()))
        voice.close()
        engine: Engine[int, int] = Engine("whisper", step, shares_state=False)
        voice.engine = engine  # type: ignore[assignment]
        watch = EngineWatch(lambda: [watched(voice)], 0.05 if gives_up else 0.0)
        watching = asyncio.create_task(watch.watch())
        call_id.current.set("sess_1")
        jobs = [asyncio.create_task(engine.run(number)) for number in range(3)]
        await until(lambda: caplog.records)
        if gives_up:
            with pytest.raises(ModelError, match="does not end"):
                await jobs[0]
            watching.cancel()  # else it may give up the next steps, for which a busy machine takes as long
        released.set()
        assert await asyncio.gather(*jobs[1:]) == [1, 2]
        assert gives_up or await jobs[0] == 0
        watching.cancel()
        engine.close()

    asyncio.run(main())
    said = caplog.records[0].getMessage()
    assert re.match(r"whisper has not finished a step for \d+\.\d s, and 2 jobs wait", said)
    assert "waits_for_the_gpu (test_engine_watch.py:" in said and "(calls sess_1)" in said
    assert said.endswith("; the step is given up") == gives_up


async def used_voice(released: threading.Event) -> tuple[Voice, Engine[str, str]]:
    """Return a voice whose engine knows its usual step. A job "slow" ends when it is released."""

    def step(items: Sequence[str]) -> Sequence[str]:
        if "slow" in items:
            waits_for_the_gpu(released)
        return items

    voice = Voice("piper", 16_000, lambda text: iter(()))
    voice.close()
    engine: Engine[str, str] = Engine("piper", step, shares_state=False)
    voice.engine = engine  # type: ignore[assignment]
    for _ in range(LEAST_STEPS):
        await engine.run("quick")
    return voice, engine


async def call(engine: Engine[str, str], name: str) -> str:
    """Run a job of the call ``name``."""
    call_id.current.set(name)
    return await engine.run(name)


@pytest.mark.parametrize("ends", [True, False])
def test_other_calls_do_not_wait_for_a_slow_step_until_it_is_given_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """Slow is a matter of the steps before. The slow one gets its result if it ends after all."""
    caplog.set_level(logging.INFO)
    released = threading.Event()

    async def main() -> None:
        voice, engine = await used_voice(released)
        watch = EngineWatch(lambda: [watched(voice)], 20.0 if ends else 1.0)
        watching = asyncio.create_task(watch.watch())
        slow = asyncio.create_task(call(engine, "slow"))
        await until(lambda: engine.current_step and engine.current_step.calls == "slow")
        assert await asyncio.gather(call(engine, "first"), call(engine, "second")) == ["first", "second"]
        assert not slow.done() and engine.stats.handed_over == 1
        if ends:
            released.set()
            assert await slow == "slow"
        else:
            with pytest.raises(ModelError, match="does not end"):
                await slow
            assert await call(engine, "slow again") == "slow again"
            released.set()
        watching.cancel()
        engine.close()

    asyncio.run(main())
    passed, *given_up = (record.getMessage() for record in caplog.records if "piper" in record.getMessage())
    assert passed.startswith("piper takes long for a step") and passed.endswith("(calls slow)")
    assert [one.endswith("(calls slow); the step is given up") for one in given_up] == [True] * (not ends)


def test_loop_that_was_blocked_makes_no_step_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a process that was stopped: the step had no time to end."""
    monkeypatch.setattr(module, "STEP_CHECK_SECONDS", LEAST_SLOW_SECONDS / 10)
    released = threading.Event()

    async def main() -> None:
        voice, engine = await used_voice(released)
        watching = asyncio.create_task(EngineWatch(lambda: [watched(voice)], 20.0).watch())
        jobs = [asyncio.create_task(call(engine, name)) for name in ("slow", "quick")]
        await asyncio.sleep(0)
        time.sleep(3 * LEAST_SLOW_SECONDS)  # noqa: ASYNC251 - it blocks the loop
        for _ in range(5):  # the watch looks once
            await asyncio.sleep(0)
        assert engine.stats.handed_over == 0 and not jobs[1].done()
        await until(lambda: engine.stats.handed_over)
        released.set()
        assert await asyncio.gather(*jobs) == ["slow", "quick"]
        watching.cancel()
        engine.close()

    asyncio.run(main())


def test_model_that_fails_is_probed_until_it_works(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that are wrong are no reason to refuse calls: a request of the server's own decides."""
    monkeypatch.setattr(module, "PROBE_INTERVAL_SECONDS", 0.01)
    caplog.set_level(logging.WARNING)
    broken: list[str] = []

    def synthesise(text: str) -> list[Piece]:
        if "wrong" in text or broken:
            raise ValueError("no voice for that")
        return []

    async def fail(voice: Voice) -> None:
        for _ in range(FAILURES_IN_A_ROW):
            with pytest.raises(ModelError):
                async for _audio in voice.speak("wrong"):
                    pass

    async def main() -> None:
        voice = Voice("piper", 16_000, lambda text: iter(synthesise(text)))
        models = watched(voice)
        watch = EngineWatch(lambda: [models], 5.0)
        watching = [asyncio.create_task(each) for each in (watch.watch(), watch.probe())]
        await fail(voice)
        await until(lambda: not voice.engine.trouble)
        assert watch.trouble == ""
        broken.append("all")
        await fail(voice)
        await until(lambda: watch.trouble)
        assert watch.trouble == "the voice does not work at this moment: the log says why"
        broken.clear()
        await until(lambda: not watch.trouble)
        for each in watching:
            each.cancel()
        voice.close()

    asyncio.run(main())
    refused, again = (record.getMessage() for record in caplog.records)
    assert refused.startswith("no calls are taken: the voice does not work: piper has failed")
    assert again == "all models work again: calls are taken"
