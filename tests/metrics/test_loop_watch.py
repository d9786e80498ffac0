"""The log names the code that blocks the event loop."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import threading
import time

import pytest

from rejoinder.agent.metrics.loop_watch import LoopWatch


def blocks_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    """Compute until the watch has noticed, as a function that never waits does."""
    deadline = time.monotonic() + 20.0
    while "blocks_the_loop" not in caplog.text and time.monotonic() < deadline:
        sum(range(1000))


async def handler(caplog: pytest.LogCaptureFixture) -> None:
    blocks_the_loop(caplog)


def test_code_that_blocks_the_loop_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        watch = LoopWatch(asyncio.get_running_loop(), 0.05)
        watch.start()
        await asyncio.create_task(handler(caplog))
        watch.close()

    asyncio.run(main())
    (said,) = [one for one in caplog.messages if "blocks_the_loop" in one]  # a busy machine adds others
    assert (
        "blocks_the_loop (test_loop_watch.py:" in said and ", called by handler (test_loop_watch.py:" in said
    )
    assert said.startswith("the event loop has been blocked for ")


def test_loop_that_waits_is_not_blocked(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        watch = LoopWatch(asyncio.get_running_loop(), 0.05)
        watch.start()
        assert watch._beat_handle is not None
        watch._beat_handle.cancel()  # no sign of life, as on a machine that is too busy
        await asyncio.sleep(0.5)
        watch.close()

    asyncio.run(main())
    assert not caplog.records


def test_child_process_that_is_awaited_without_await_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        watch = LoopWatch(asyncio.get_running_loop(), 0.05)
        command = ["sleep", "20"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: ASYNC220
        ending = threading.Thread(target=end, args=(child,))
        ending.start()
        watch.start()
        child.communicate()  # the mistake
        watch.close()
        ending.join()

    def end(child: subprocess.Popen[bytes]) -> None:
        """End the child when it has been noticed."""
        deadline = time.monotonic() + 20.0
        while not caplog.records and time.monotonic() < deadline:
            time.sleep(0.01)
        child.kill()

    asyncio.run(main())
    (record,) = caplog.records
    assert "select (selectors.py:" in record.getMessage() and "subprocess.py:" in record.getMessage()
