"""A thread for a file that may hang: who waits for it gives up, and the program can end without it."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Returned = TypeVar("Returned")
"""What a function returns."""

MOST_WAITING_WORK = 10_000
"""Most functions that wait for the thread."""
ENDS_WITHIN_S = 1.0
"""Longest wait for the end of the thread, in seconds: it has nothing left to do."""


class FileThread:
    """Runs functions one after the other in a thread of its own.

    seconds: longest wait for a function, None for no limit. While one takes longer, further ones are refused
    at once. Unlike those of an executor, the thread does not keep the program from ending.
    """

    def __init__(self, name: str, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._waiting: queue.Queue[tuple[Future[Any], Callable[[], Any]] | None]
        self._waiting = queue.Queue(MOST_WAITING_WORK)
        self._since: float | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[], Returned]) -> Returned:
        """Return what a function returns. Raises its errors, and TimeoutError where the file hangs.

        Cancelling stops the wait: a function that has begun goes on, and one that has not never runs.
        """
        since = self._since
        if self._seconds is not None and since is not None and time.monotonic() - since > self._seconds:
            raise self._hangs()
        future: Future[Returned] = Future()
        try:
            self._waiting.put_nowait((future, work))
        except queue.Full:
            raise self._hangs() from None
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if future.done() and not future.cancelled():
                raise  # the function's own
            raise self._hangs() from None

    def close(self) -> None:
        """End the thread after what was begun. A function that hangs is left behind."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return
        if self._since is None:
            self._thread.join(ENDS_WITHIN_S)

    def _hangs(self) -> TimeoutError:
        return TimeoutError(f"the file has not answered for {self._seconds or 0.0:g} s")

    def _work(self) -> None:
        while (one := self._waiting.get()) is not None:
            future, work = one
            if not future.set_running_or_notify_cancel():
                continue
            self._since = time.monotonic()
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
            self._since = None
