"""The clock that the scenarios rely on."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from rejoinder.agent.simulate import virtual_clock


def test_time_jumps() -> None:
    async def main() -> float:
        await asyncio.sleep(3600.0)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    assert virtual_clock.run(main()) == 3600.0
    assert time.monotonic() - began < 60.0


def test_a_deadlock_is_reported() -> None:
    with pytest.raises(virtual_clock.Deadlock):
        virtual_clock.run(asyncio.Event().wait())


def test_a_task_left_behind_is_reported() -> None:
    async def main() -> None:
        left = asyncio.ensure_future(asyncio.sleep(1.0))
        await asyncio.sleep(0)
        assert not left.done()

    with pytest.raises(virtual_clock.Leak, match="left behind"):
        virtual_clock.run(main())


def test_an_unhandled_error_is_reported() -> None:
    async def fail() -> None:
        raise ValueError("unseen")

    async def main() -> None:
        task = asyncio.ensure_future(fail())
        await asyncio.sleep(1.0)
        assert task.done()

    with pytest.raises(virtual_clock.Leak, match="unhandled errors"):
        virtual_clock.run(main())


def test_another_thread_has_to_wake_the_loop() -> None:
    """A callback that another thread adds in any other way is lost until something else happens."""

    async def main() -> list[str]:
        loop, ran = asyncio.get_running_loop(), asyncio.Event()
        refused: list[str] = []

        def elsewhere() -> None:
            for call in (lambda: loop.call_soon(ran.set), lambda: loop.call_later(1.0, ran.set)):
                try:
                    call()
                except RuntimeError as error:
                    refused.append(str(error))
            loop.call_soon_threadsafe(ran.set)

        with virtual_clock.standing_still():
            thread = threading.Thread(target=elsewhere)
            thread.start()
            await ran.wait()
            thread.join()
        return refused

    refused = virtual_clock.run(main())
    assert len(refused) == 2 and all("call_soon_threadsafe" in reason for reason in refused)
