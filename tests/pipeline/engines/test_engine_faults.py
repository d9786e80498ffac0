"""An engine whose step raises, hangs or ends its thread: its callers hear of it, and the others go on."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from rejoinder.pipeline.engines import call_id
from rejoinder.pipeline.engines import engine as module
from rejoinder.pipeline.engines.engine import FAILURES_IN_A_ROW, HUNG_THREADS, Engine
from rejoinder.pipeline.engines.steps import (
    LEAST_SLOW_SECONDS,
    LEAST_STEPS,
    TIMES_THE_USUAL,
    EngineStep,
    slow_after,
)
from rejoinder.pipeline.errors import ModelError

SOON = 60.0


class Panic(BaseException):
    """As pyo3's ``PanicException``: an error of native code that is no ``Exception``."""


class Model:
    """Doubles numbers. A step with 13 raises, one with 666 panics, and one with a negative number hangs."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.threads: set[int] = set()

    def step(self, batch: Sequence[int]) -> list[int]:
        self.threads.add(threading.get_ident())
        if 13 in batch:
            raise ValueError("unlucky")
        if 666 in batch:
            raise Panic("out of range")
        if min(batch) < 0:
            assert self.released.wait(SOON)
        return [2 * item for item in batch]


async def hung(engine: Engine[int, int]) -> EngineStep:
    """Wait until a step runs, and return it."""
    async with asyncio.timeout(SOON):
        while (step := engine.current_step) is None:  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.001)
    return step


async def until_ended(engine: Engine[int, int]) -> None:
    async with asyncio.timeout(SOON):
        while engine.hung:  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(("item", "words"), [(13, "unlucky"), (666, "out of range")])
def test_step_that_raises_fails_its_jobs_only(item: int, words: str) -> None:
    async def main() -> None:
        model = Model()
        engine = Engine("doubler", model.step, shares_state=False)
        with pytest.raises(ModelError, match=words):
            await engine.run(item)
        assert await engine.run(4) == 8
        assert (engine.stats.failed, engine.stats.in_a_row, engine.trouble) == (1, 0, "")
        assert len(model.threads) == 1
        engine.close()

    asyncio.run(main())


def test_engine_that_fails_again_and_again_says_so_until_it_succeeds() -> None:
    async def main() -> None:
        engine = Engine("doubler", Model().step)
        for _ in range(FAILURES_IN_A_ROW):
            assert engine.trouble == ""
            with pytest.raises(ModelError):
                await engine.run(13)
        assert engine.trouble == f"doubler has failed {FAILURES_IN_A_ROW} times in a row: doubler: unlucky"
        assert await engine.run(1) == 2
        assert engine.trouble == ""
        engine.close()

    asyncio.run(main())


def test_thread_that_is_ended_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """An exception from outside ends the thread while it waits for jobs."""

    async def main() -> None:
        model = Model()
        engine = Engine("doubler", model.step, shares_state=False)
        assert await engine.run(1) == 2
        (thread,) = model.threads
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(SystemExit))
        with engine._news:  # it takes its exception when it wakes up
            engine._news.notify()
        async with asyncio.timeout(SOON):
            while not engine.stats.replaced:  # noqa: ASYNC110 - of another thread
                await asyncio.sleep(0.001)
        assert await engine.run(2) == 4
        assert len(model.threads) == 2
        engine.close()

    asyncio.run(main())
    assert "the thread of doubler has ended, and another one replaces it" in caplog.text


def test_job_that_ends_the_thread_that_chooses_it_is_not_chosen_again() -> None:
    def alike(item: int, sure: bool) -> int:
        if item == 666:
            raise Panic("no kind")
        return 0

    async def main() -> None:
        engine = Engine("doubler", Model().step, alike=alike)
        for _ in range(2):
            with pytest.raises(ModelError, match="its thread has ended: Panic"):
                await engine.run(666)
        assert await engine.run(1) == 2
        engine.close()

    asyncio.run(main())


def test_other_jobs_go_on_where_a_step_hangs() -> None:
    async def main() -> None:
        model = Model()
        engine = Engine("doubler", model.step, shares_state=False)
        victim = asyncio.create_task(engine.run(-1))
        step = await hung(engine)
        other = asyncio.create_task(engine.run(5))
        assert engine.give_up(step)
        assert not engine.give_up(step)
        with pytest.raises(ModelError) as failed:
            await victim
        assert failed.value.code == "model_timeout"
        assert await other == 10
        assert (engine.hung, engine.stats.replaced, engine.trouble) == (1, 1, "")
        model.released.set()
        await until_ended(engine)
        assert await engine.run(6) == 12
        assert engine.stats.steps == 2, "the result of a step that was given up counts for nothing"
        engine.close()

    asyncio.run(main())


@pytest.mark.parametrize("shares_state", [True, False])
def test_engine_without_a_thread_refuses_until_a_step_has_ended(shares_state: bool) -> None:
    """Steps that share state have one thread; others at most ``HUNG_THREADS`` more."""

    async def main() -> None:
        model = Model()
        engine = Engine("doubler", model.step, shares_state=shares_state)
        count = 1 if shares_state else HUNG_THREADS + 1
        victims = []
        for _ in range(count):
            victims.append(asyncio.create_task(engine.run(-1)))
            step = await hung(engine)
            waiting = asyncio.create_task(engine.run(7))
            await asyncio.sleep(0)
            assert engine.give_up(step)
            if len(victims) < count:
                assert await waiting == 14
        for task in (*victims, waiting):
            with pytest.raises(ModelError, match="does not end"):
                await task
        with pytest.raises(ModelError, match="does not end"):
            await engine.run(8)
        assert engine.trouble == f"doubler has no thread: {count} of its steps have not ended"
        model.released.set()
        await until_ended(engine)
        assert engine.trouble == ""
        assert await engine.run(9) == 18
        engine.close()

    asyncio.run(main())


def test_engine_whose_step_hangs_can_be_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "ENGINE_CLOSE_SECONDS", 0.05)

    async def main() -> None:
        model = Model()
        engine = Engine("doubler", model.step, shares_state=False)
        jobs = [asyncio.create_task(engine.run(number)) for number in (-1, 3)]
        await hung(engine)
        engine.close()
        for job in jobs:
            with pytest.raises(ModelError, match="the engine is closed"):
                await job
        model.released.set()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert "doubler does not finish its step, and is left behind" in caplog.text
    deadline = time.monotonic() + SOON
    while any(thread.name == "engine-doubler" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.001)


async def of_call(engine: Engine[int, int], call: str, item: int) -> int:
    call_id.current.set(call)
    return await engine.run(item)


def test_other_calls_pass_a_slow_step_that_ends_after_all() -> None:
    """Nothing is lost and nothing runs twice; the jobs of the slow call wait for it."""

    async def main() -> None:
        model = Model()
        engine = Engine("doubler", model.step, shares_state=False)
        slow = asyncio.create_task(of_call(engine, "a", -1))
        step = await hung(engine)
        assert not engine.hand_over(step), "nobody waits"
        same = asyncio.create_task(of_call(engine, "a", 2))
        await asyncio.sleep(0)
        assert not engine.hand_over(step), "only its own call waits"
        assert await asyncio.gather(of_call(engine, "b", 3), passed(engine, step)) == [6, None]
        assert not engine.hand_over(step)
        assert await of_call(engine, "b", 4) == 8
        assert engine.running_steps == [step] and not slow.done() and not same.done()
        model.released.set()
        assert await asyncio.gather(slow, same) == [-2, 4]
        assert (engine.stats.steps, engine.stats.failed, engine.stats.handed_over) == (4, 0, 1)
        assert (engine.hung, engine.running_steps, engine.trouble) == (0, [], "")
        engine.close()

    asyncio.run(main())


async def passed(engine: Engine[int, int], step: EngineStep) -> None:
    """Hand over as soon as a job of another call waits."""
    async with asyncio.timeout(SOON):
        while not engine.hand_over(step):  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.001)


def test_step_that_was_handed_over_can_be_given_up() -> None:
    async def main() -> None:
        model = Model()
        engine = Engine("doubler", model.step, shares_state=False)
        slow = asyncio.create_task(of_call(engine, "a", -1))
        step = await hung(engine)
        same = asyncio.create_task(of_call(engine, "a", 2))
        assert await asyncio.gather(of_call(engine, "b", 3), passed(engine, step)) == [6, None]
        assert engine.give_up(step)
        assert not engine.give_up(step)
        with pytest.raises(ModelError, match="does not end"):
            await slow
        assert await same == 4
        assert (engine.hung, engine.stats.handed_over, engine.stats.failed) == (1, 1, 1)
        assert engine.stats.replaced == 0, "another thread works since the step was handed over"
        model.released.set()
        await until_ended(engine)
        engine.close()

    asyncio.run(main())


def test_steps_that_share_state_are_not_passed_nor_is_a_third_slow_one() -> None:
    async def main() -> None:
        model = Model()
        engine = Engine("doubler", model.step, shares_state=False)
        slow = []
        for call in range(HUNG_THREADS + 1):
            slow.append(asyncio.create_task(of_call(engine, str(call), -1)))
            step = await hung(engine)
            other = asyncio.create_task(of_call(engine, "other", 3))
            await asyncio.sleep(0)
            assert engine.hand_over(step) == (call < HUNG_THREADS)
            if call < HUNG_THREADS:
                assert await other == 6
        model.released.set()
        assert await asyncio.gather(*slow, other) == [-2] * len(slow) + [6]
        engine.close()
        model.released.clear()
        alone = Engine("sharer", model.step)
        slow = [asyncio.create_task(of_call(alone, "a", -1))]
        step = await hung(alone)
        slow.append(asyncio.create_task(of_call(alone, "b", 2)))
        await asyncio.sleep(0)
        assert not alone.hand_over(step)
        model.released.set()
        assert await asyncio.gather(*slow) == [-2, 4]
        alone.close()

    asyncio.run(main())


def test_engine_with_a_slow_step_is_closed_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENGINE_CLOSE_SECONDS", SOON)

    async def main() -> None:
        model = Model()
        engine = Engine("doubler", model.step, shares_state=False)
        slow = asyncio.create_task(of_call(engine, "a", -1))
        step = await hung(engine)
        assert await asyncio.gather(of_call(engine, "b", 3), passed(engine, step)) == [6, None]
        releasing = threading.Timer(0.05, model.released.set)
        releasing.start()
        engine.close()
        assert await slow == -2
        releasing.join()

    asyncio.run(main())


def test_steps_beside_each_other_press_until_the_last_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their time counts once, and jobs that a slow step holds back do not make the engine late."""
    monkeypatch.setattr(module, "LULL_SECONDS", 0.0)
    released = {call: threading.Event() for call in (1, 2, 3)}

    def step(calls: Sequence[int]) -> Sequence[int]:
        for call in calls:
            assert released[call].wait(SOON)
        return calls

    async def main() -> None:
        engine = Engine("doubler", step, shares_state=False)
        began = time.perf_counter()
        slow = asyncio.create_task(of_call(engine, "a", 1))
        first = await hung(engine)
        same = asyncio.create_task(of_call(engine, "a", 3))
        other, _ = asyncio.create_task(of_call(engine, "b", 2)), await passed(engine, first)
        await hung(engine)
        assert engine.waiting == 1 and engine.age == 0.0
        await asyncio.sleep(0.1)
        for call, task in ((1, slow), (3, same)):
            assert engine.pressing
            released[call].set()
            if call == 1:
                await task
        assert engine.pressing, "the step of b goes on"
        released[2].set()
        await asyncio.gather(same, other)
        assert not engine.pressing
        passed_by = time.perf_counter() - began
        assert 0.1 <= engine.stats.pressing == engine.stats.busy <= passed_by
        engine.close()

    asyncio.run(main())


def test_closing_waits_for_all_steps_together(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, waited = 0.2, list[float]()
    monkeypatch.setattr(module, "ENGINE_CLOSE_SECONDS", seconds)

    async def main() -> None:
        """Close an engine with two steps that do not end."""
        model = Model()
        engine = Engine("doubler", model.step, shares_state=False)
        jobs = [asyncio.create_task(of_call(engine, call, -1)) for call in ("a", "b")]
        await passed(engine, await hung(engine))
        await hung(engine)
        wait_for = engine._news.wait_for

        def waiting(predicate: Callable[[], object], timeout: float | None = None) -> object:
            waited.append(timeout or 0.0)
            return wait_for(predicate, timeout)

        monkeypatch.setattr(engine._news, "wait_for", waiting)
        engine.close()  # the thread takes all of the time, and nothing is left for the slow step
        model.released.set()
        for job in jobs:
            with pytest.raises(ModelError, match="the engine is closed"):
                await job

    asyncio.run(main())
    assert waited[0] == 0.0


def test_engine_that_gets_no_thread_fails_its_jobs_until_it_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        model = Model()
        engine = Engine("doubler", model.step, shares_state=False)
        slow = asyncio.create_task(of_call(engine, "a", -1))
        step = await hung(engine)
        waiting = asyncio.create_task(of_call(engine, "b", 2))
        await asyncio.sleep(0)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_room)
            assert not engine.hand_over(step) and engine.running_steps == [step]
            assert engine.give_up(step)
            for job in (slow, waiting):
                with pytest.raises(ModelError, match="does not end"):
                    await job
            assert engine.trouble == "doubler has no thread: 1 of its steps have not ended"
        model.released.set()
        await until_ended(engine)
        assert engine.trouble == "" and await engine.run(3) == 6
        engine.close()

    asyncio.run(main())


def test_engine_whose_thread_ended_begins_another_one_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def alike(item: int, sure: bool) -> int:
        if item == 666:
            raise Panic("no kind")
        return 0

    async def main() -> None:
        engine = Engine("doubler", Model().step, alike=alike)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_room)
            for item in (666, 1):
                with pytest.raises(ModelError):
                    await engine.run(item)
            assert engine.trouble == "doubler has no thread: 0 of its steps have not ended"
        assert await engine.run(2) == 4
        engine.close()

    asyncio.run(main())


def no_room(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("recent", "most", "seconds"),
    [
        ([], 10.0, 10.0),
        ([0.2] * (LEAST_STEPS - 1), 10.0, 10.0),
        ([0.2] * LEAST_STEPS, 10.0, 0.2 * TIMES_THE_USUAL),
        ([0.001] * 500, 10.0, LEAST_SLOW_SECONDS),
        ([0.2] * 99 + [5.0], 10.0, 0.2 * TIMES_THE_USUAL),
        ([0.2] * 90 + [2.0] * 10, 10.0, 2.0 * TIMES_THE_USUAL),
        ([4.0] * 100, 10.0, 10.0),
    ],
)
def test_what_is_slow_follows_from_the_last_steps(recent: list[float], most: float, seconds: float) -> None:
    assert slow_after(recent, most) == pytest.approx(seconds)
