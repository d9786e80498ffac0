"""Looks names up in threads that keep neither other work nor the end of the program waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

MOST_LOOKUPS = 32
"""Names that are looked up at the same time. One without an answer keeps its thread for 10 s and longer."""


class Lookups:
    """Runs each lookup in a daemon thread of its own, at most ``MOST_LOOKUPS`` at a time.

    Python waits for the threads of an executor when it ends, also for those that a dead name server holds.
    """

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(MOST_LOOKUPS)

    async def run(self, look: Callable[[], Any]) -> Any:
        """Return what a function returns. Raises its error, and OSError where no thread can be started.

        Cancelling stops the wait, and no thread.
        """
        await self._room.acquire()
        loop, future = asyncio.get_running_loop(), Future[Any]()
        future.set_running_or_notify_cancel()

        def work() -> None:
            try:
                future.set_result(look())
            except BaseException as error:
                future.set_exception(error)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._room.release)

        try:
            threading.Thread(target=work, name="lookup", daemon=True).start()
        except RuntimeError as error:
            self._room.release()
            raise OSError(f"a name is not looked up: {error}") from error
        return await asyncio.wrap_future(future)
