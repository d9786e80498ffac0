"""Functions of the integrator run in a bounded number of threads, and coroutines that block are named."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rejoinder.agent.app.functions.runner import BLOCKING_S, FunctionRunner
from rejoinder.agent.app.functions.threads import FunctionThreads

PATIENCE = 20.0
"""Longest wait of these tests, in seconds."""


class Doors:
    """A function that waits in its thread until ``open`` is set. begun: number of calls that began."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.begun = 0
        self.ended = 0

    def wait(self) -> str:
        self.begun += 1
        self.open.wait(PATIENCE)
        self.ended += 1
        return "through"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - a thread sets no event of asyncio
            await asyncio.sleep(0.005)


@pytest.fixture
def doors() -> Iterator[Doors]:
    made = Doors()
    yield made
    made.open.set()


def test_cancelled_function_keeps_its_thread_until_it_returns(
    doors: Doors, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        runner = FunctionRunner(1)
        first = asyncio.create_task(runner.run(doors.wait))
        await until(lambda: doors.begun == 1)
        first.cancel()
        await asyncio.wait([first])
        second = asyncio.create_task(runner.run(lambda: "second"))
        third = asyncio.create_task(runner.run(doors.wait))
        await asyncio.sleep(0.05)
        assert not second.done(), "the only thread is in use"
        third.cancel()
        doors.open.set()
        assert await second == "second"
        assert doors.begun == 1, "one that is cancelled while it waits is not called"
        assert [await runner.run(str, number) for number in range(3)] == ["0", "1", "2"]

    asyncio.run(main())
    assert (
        caplog.text.count("goes on in its thread") == 1
        and "was cancelled, but goes on in its thread" in caplog.text
    )
    assert "waits: all 1 threads are in use, 1 of them by functions that were cancelled" in caplog.text


def test_places_are_neither_lost_nor_doubled_wherever_a_cancel_comes() -> None:
    async def main() -> None:
        threads = FunctionThreads(2)
        for step in range(12):
            task = asyncio.create_task(threads.run(lambda: None, lambda: None))
            for _ in range(step):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        await until(lambda: threads.abandoned == 0)
        doors = Doors()
        tasks = [asyncio.create_task(threads.run(doors.wait, lambda: None)) for _ in range(4)]
        await until(lambda: doors.begun == 2)
        await asyncio.sleep(0.02)
        assert doors.begun == 2 and threads.full
        doors.open.set()
        assert await asyncio.gather(*tasks) == ["through"] * 4
        assert not threads.full

    asyncio.run(main())


def test_function_that_ends_after_its_loop_does_no_harm(doors: Doors) -> None:
    async def main() -> None:
        task = asyncio.create_task(FunctionRunner(1).run(doors.wait))
        await until(lambda: doors.begun == 1)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    doors.open.set()
    deadline = time.monotonic() + PATIENCE
    while not doors.ended and time.monotonic() < deadline:
        time.sleep(0.005)
    assert doors.ended == 1


def test_exceptions_pass_also_one_that_a_future_cannot_hold() -> None:
    def empty() -> object:
        return next(iter(()))

    def broken() -> None:
        raise KeyError("key")

    async def late() -> None:
        await asyncio.sleep(0)
        raise ValueError("late")

    async def main() -> None:
        runner = FunctionRunner(1)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(runner.run(empty), PATIENCE)
        with pytest.raises(KeyError):
            await runner.run(broken)
        with pytest.raises(ValueError, match="late"):
            await runner.run(late)

    asyncio.run(main())


def test_coroutine_that_blocks_the_loop_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async def blocks(seconds: float) -> str:
        await asyncio.sleep(0)
        time.sleep(seconds)  # noqa: ASYNC251 - the mistake under test
        return "done"

    async def waits() -> str:
        await asyncio.sleep(1.5 * BLOCKING_S)
        return "done"

    async def main() -> list[str]:
        runner = FunctionRunner(1)
        return [
            await runner.run(waits),
            await runner.run(blocks, 1.2 * BLOCKING_S),
            await runner.run(blocks, 1.2 * BLOCKING_S),
        ]

    assert asyncio.run(main()) == ["done"] * 3
    told = [one.message for one in caplog.records if " held up all calls for " in one.message]
    blamed = [message for message in told if "blocks (" in message]
    assert len(blamed) == 1 and "test_runner.py, line" in blamed[0]


def test_measured_coroutine_is_cancelled_and_timed_out_as_any_other() -> None:
    log: list[str] = []

    async def careful() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(PATIENCE)
        except TimeoutError:
            log.append("timed out")
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            log.append("cancelled")
            raise
        return "never"

    async def main() -> None:
        task = asyncio.create_task(FunctionRunner(1).run(careful))
        await until(lambda: log == ["timed out"])
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() and log == ["timed out", "cancelled"]

    asyncio.run(main())


class Lookup:
    """An object that is called as a coroutine function."""

    async def __call__(self, word: str) -> str:
        return f"{word} on {threading.current_thread().name}"


@pytest.mark.parametrize("function", [Lookup(), functools.partial(Lookup().__call__)])
def test_object_and_partial_with_a_coroutine_run_on_the_loop(function: Any) -> None:
    assert asyncio.run(FunctionRunner(1).run(function, "it")) == "it on MainThread"


def test_coroutine_of_a_plain_function_is_awaited() -> None:
    assert asyncio.run(FunctionRunner(1).run(lambda word: Lookup()(word), "it")) == "it on MainThread"
