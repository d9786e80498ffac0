"""One model on one thread, used by many sessions at once. Real threads, and gates instead of sleeps."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest
from support.patience import PATIENCE

from rejoinder.pipeline.engines import engine as module
from rejoinder.pipeline.engines.deadline import PARTIAL_SECONDS, SPARE_SECONDS, Deadline, current
from rejoinder.pipeline.engines.engine import Engine
from rejoinder.pipeline.errors import ModelError, Overloaded


class Doubler:
    """A model that doubles, one gate per step: it says when a step begins and waits to be let through."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)

    def step(self, batch: Sequence[int]) -> list[int]:
        self.batches.append(list(batch))
        self.begun.release()
        assert self.gate.acquire(timeout=PATIENCE)
        if 13 in batch:
            raise ValueError("unlucky")
        return [2 * item for item in batch][: 1 if 99 in batch else None]

    async def until_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=PATIENCE)

    def open(self) -> None:
        self.gate.release(100)


@pytest.fixture
def doubler() -> Iterator[Doubler]:
    before = set(threading.enumerate())
    model = Doubler()
    yield model
    model.open()
    left = [thread for thread in threading.enumerate() if thread not in before and "engine" in thread.name]
    assert not left


async def ask(engine: Engine[int, int], items: Sequence[int]) -> list[asyncio.Task[int]]:
    """Start a task for each item, in order."""
    tasks = [asyncio.create_task(engine.run(item)) for item in items]
    await asyncio.sleep(0)
    return tasks


def until(true: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run on a real loop; fail on an unhandled error."""
    unseen: list[dict[str, Any]] = []
    with asyncio.Runner(debug=True) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: unseen.append(context))
        runner.run(main)
    assert not unseen


def test_what_waits_is_batched(doubler: Doubler) -> None:
    async def main() -> None:
        engine = Engine("doubler", doubler.step, max_batch=3)
        first = await ask(engine, [1])
        await doubler.until_begun()
        later = await ask(engine, [2, 3, 4, 5])
        assert engine.waiting == 4
        doubler.open()
        assert await asyncio.gather(*first, *later) == [2, 4, 6, 8, 10]
        engine.close()
        assert doubler.batches == [[1], [2, 3, 4], [5]]
        stats = engine.stats
        assert (stats.steps, stats.jobs, stats.dropped) == (3, 5, 0)
        assert engine.stats.busy > 0.0

    run(main())


def test_cancelled_jobs_never_run(doubler: Doubler) -> None:
    async def main() -> None:
        engine = Engine("doubler", doubler.step, max_batch=8)
        (running,) = await ask(engine, [1])
        await doubler.until_begun()
        waiting = await ask(engine, [2, 3, 4])
        waiting[1].cancel()
        running.cancel()  # its step finishes; the result is dropped
        await asyncio.wait([waiting[1], running])
        doubler.open()
        assert [await waiting[0], await waiting[2]] == [4, 8]
        engine.close()
        assert doubler.batches == [[1], [2, 4]]
        assert engine.stats.dropped == 1

    run(main())


async def ask_as(engine: Engine[int, int], item: int, urgent: Deadline) -> int:
    current.set(urgent)
    return await engine.run(item)


def test_the_most_urgent_goes_first_by_what_is_true_when_the_step_begins(doubler: Doubler) -> None:
    async def main() -> None:
        engine = Engine("doubler", doubler.step)
        running = await ask(engine, [1])
        await doubler.until_begun()
        now = asyncio.get_running_loop().time()
        guess, partial, sounds = Deadline(), Deadline(PARTIAL_SECONDS), Deadline(due=now + 60.0)
        asked = {2: partial, 3: Deadline(SPARE_SECONDS), 4: guess, 5: sounds, 6: Deadline(due=now)}
        tasks = [asyncio.create_task(ask_as(engine, item, urgent)) for item, urgent in asked.items()]
        await asyncio.sleep(0)
        assert engine.waiting == 5 and engine.age > 0.0
        partial.due = now - 1.0  # it is needed after all
        doubler.open()
        await asyncio.gather(*running, *tasks)
        engine.close()
        assert doubler.batches == [[1], [2], [6], [4], [5], [3]]
        assert engine.stats.waited > 0.0 and engine.age == 0.0
        assert 0.0 < engine.stats.pressing < engine.stats.busy, "what sounds, and text, had time"

    run(main())


def test_it_reports_whether_pressing_work_runs(doubler: Doubler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LULL_SECONDS", 60.0)

    async def main() -> None:
        engine = Engine("doubler", doubler.step)
        assert not engine.pressing
        sounds = Deadline(due=asyncio.get_running_loop().time() + 60.0)
        for urgent, presses in ((sounds, False), (Deadline(PARTIAL_SECONDS), False), (Deadline(), True)):
            task = asyncio.create_task(ask_as(engine, 1, urgent))
            await doubler.until_begun()
            assert engine.pressing is presses
            doubler.gate.release()
            await task
        assert engine.pressing, "the next token is about to be asked for"
        monkeypatch.setattr(module, "LULL_SECONDS", 0.0)
        assert not engine.pressing
        engine.close()

    run(main())


def test_only_what_is_alike_is_batched(doubler: Doubler) -> None:
    async def main() -> None:
        engine = Engine("doubler", doubler.step, max_batch=4, alike=lambda item, sure: (item % 2, sure))
        running = await ask(engine, [1])
        await doubler.until_begun()
        guesses = [asyncio.create_task(ask_as(engine, item, Deadline())) for item in (2, 4)]
        later = await ask(engine, [6, 3, 8, 10, 5])
        doubler.open()
        assert await asyncio.gather(*running, *guesses, *later) == [2, 4, 8, 12, 6, 16, 20, 10]
        engine.close()
        assert doubler.batches == [[1], [6, 8, 10], [3, 5], [2, 4]]

    run(main())


def test_callers_that_generate_token_by_token_share_steps(
    doubler: Doubler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two who are back in no time would otherwise take turns for ever, each alone in its step."""
    monkeypatch.setattr(
        "rejoinder.pipeline.engines.engine.RETURN_SECONDS", 1.0
    )  # a busy machine is slow to come back

    def step(items: list[int]) -> list[int]:
        """Take as long as a model does: who waits for its end is back before the next one ends."""
        time.sleep(0.003)
        return doubler.step(items)

    async def main() -> None:
        engine = Engine("doubler", step, max_batch=2)
        doubler.gate.release(10_000)

        async def often() -> None:
            for _ in range(100):
                await engine.run(1)

        await asyncio.gather(often(), often())
        engine.close()
        assert engine.stats.jobs == 200 and engine.stats.steps < 150

    run(main())


def test_errors_go_to_the_callers_and_the_engine_goes_on(doubler: Doubler) -> None:
    async def main() -> None:
        engine = Engine("doubler", doubler.step, max_batch=2)
        doubler.open()
        with pytest.raises(ModelError, match=r"^doubler: unlucky$") as caught:
            await engine.run(13)
        assert isinstance(caught.value.__cause__, ValueError)
        assert await engine.run(4) == 8
        engine.close()

    run(main())


def test_a_step_must_answer_every_job(doubler: Doubler) -> None:
    async def main() -> None:
        engine = Engine("doubler", doubler.step, max_batch=2)
        first = await ask(engine, [1])
        await doubler.until_begun()
        later = await ask(engine, [99, 1])
        doubler.open()
        await asyncio.gather(*first)
        answers = await asyncio.gather(*later, return_exceptions=True)
        assert [str(answer) for answer in answers] == ["doubler: the step answered 1 of 2 jobs"] * 2
        engine.close()

    run(main())


def test_a_full_engine_says_so(doubler: Doubler) -> None:
    async def main() -> None:
        engine = Engine("doubler", doubler.step, max_waiting=2)
        running = await ask(engine, [1])
        await doubler.until_begun()
        waiting = await ask(engine, [2, 3])
        with pytest.raises(Overloaded, match="doubler: 2 jobs"):
            await engine.run(4)
        doubler.open()
        assert await asyncio.gather(*running, *waiting) == [2, 4, 6]
        engine.close()

    run(main())


def test_closing_finishes_the_step_and_fails_what_waits(doubler: Doubler) -> None:
    async def main() -> None:
        engine = Engine("doubler", doubler.step, max_batch=2)
        running = await ask(engine, [1])
        await doubler.until_begun()
        waiting = await ask(engine, [2, 3, 4])
        closing = asyncio.create_task(asyncio.to_thread(engine.close))
        await asyncio.to_thread(until, lambda: engine._closed)
        doubler.open()
        await closing
        assert await asyncio.gather(*running) == [2]
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(answer) for answer in answers] == ["doubler: the engine is closed"] * 3
        assert doubler.batches == [[1]]
        with pytest.raises(ModelError, match="closed"):
            await engine.run(5)
        engine.close()

    run(main())


def test_a_loop_that_is_gone_does_no_harm(doubler: Doubler) -> None:
    engine = Engine("doubler", doubler.step)

    async def leave() -> None:
        await ask(engine, [1])
        await doubler.until_begun()

    asyncio.run(leave())
    doubler.open()

    async def main() -> int:
        return await engine.run(2)

    assert asyncio.run(main()) == 4
    engine.close()


def test_two_loops_may_share_an_engine(doubler: Doubler) -> None:
    engine = Engine("doubler", doubler.step, max_batch=4)
    doubler.open()
    answers: list[list[int]] = []

    async def main() -> None:
        answers.append([await engine.run(item) for item in range(12)])

    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    engine.close()
    assert answers == [[2 * item for item in range(12)]] * 2
