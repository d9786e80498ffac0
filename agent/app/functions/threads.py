"""Runs synchronous functions in a bounded number of threads, which they hold until they return."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
from anyio.to_thread import run_sync


class FunctionThreads:
    """Threads for synchronous functions.

    most: most threads at a time; further functions wait. A thread cannot be stopped. So a function that was
    cancelled goes on, and keeps its place until it returns; ``anyio.to_thread.run_sync`` would free it at
    once.

    abandoned: number of threads whose function was cancelled.
    """

    def __init__(self, most: int) -> None:
        self.abandoned = 0
        self._places = anyio.CapacityLimiter(most)
        self._threads = anyio.CapacityLimiter(math.inf)

    @property
    def full(self) -> bool:
        """Whether a further function has to wait."""
        return self._places.available_tokens < 1

    async def run(self, work: Callable[[], Any], went_on: Callable[[], None]) -> Any:
        """Call a function in a thread and return its result; its exceptions pass.

        went_on: called where the function goes on after a cancel. Cancelling drops its result; a function
        that has not begun is not called.
        """
        loop = asyncio.get_running_loop()
        run = _Run(work, lambda: self._returned(run))
        await self._places.acquire_on_behalf_of(run)
        try:
            return await run_sync(run.call, loop, abandon_on_cancel=True, limiter=self._threads)
        except asyncio.CancelledError:
            if run.claim():
                self._places.release_on_behalf_of(run)
            elif not run.returned:
                run.abandoned = True
                self.abandoned += 1
                went_on()
            raise

    def _returned(self, run: _Run) -> None:
        run.returned = True
        self._places.release_on_behalf_of(run)
        self.abandoned -= run.abandoned


class _Run:
    """One run of a function. done: called on the loop when it has returned."""

    def __init__(self, work: Callable[[], Any], done: Callable[[], None]) -> None:
        self.abandoned = self.returned = False
        self._work = work
        self._done = done
        self._unclaimed = [True]

    def claim(self) -> bool:
        """Return True to the first of the thread, which is to call the function, and who cancels it."""
        try:
            return self._unclaimed.pop()
        except IndexError:
            return False

    def call(self, loop: asyncio.AbstractEventLoop) -> Any:
        """Call the function, in its thread."""
        if not self.claim():
            return None
        try:
            return self._work()
        except StopIteration as error:  # asyncio's futures cannot hold it
            raise RuntimeError("the function raised StopIteration") from error
        finally:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._done)
