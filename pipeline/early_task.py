"""Work that begins while the user still speaks, for a reply that may wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from rejoinder.pipeline.replying.cancelled_tasks import CancelledTasks

log = logging.getLogger(__name__)


class EarlyTask:
    """Runs one coroutine in a task; a failure is logged, and the reply does without.

    what: what it asks, for the log, such as "the cache". name: of the task. ended: called at its end.
    seconds: how long it took, 0.0 until it has ended.
    """

    def __init__(
        self,
        work: Coroutine[Any, Any, None],
        what: str,
        name: str,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self.seconds = 0.0
        self._waiting = 0
        self._replaced = False
        self._ended = ended
        self.task = asyncio.create_task(self._run(work, what), name=name)

    async def _run(self, work: Coroutine[Any, Any, None], what: str) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await work
        except Exception:
            log.exception("%s failed; the reply does without", what)
        self.seconds = loop.time() - began
        self._ended()

    @property
    def done(self) -> bool:
        """Whether the work has ended."""
        return self.task.done()

    @property
    def unused(self) -> bool:
        """Whether no reply waits for the work, and no other words have replaced it."""
        return not self._waiting and not self._replaced

    def replace(self, cancelled: CancelledTasks) -> None:
        """Cancel the work, now or when the reply that waits for it is cancelled.

        cancelled: holds the task until it has ended.
        """
        if not self.done:
            cancelled.add(self.task)
        self._replaced = True
        self._cancel_unused()

    async def wait(self, seconds: float) -> None:
        """Wait until the work has ended, at most this long.

        Cancelling the last wait cancels work that was replaced.
        """
        self._waiting += 1
        try:
            await asyncio.wait([self.task], timeout=seconds)
        finally:
            self._waiting -= 1
            self._cancel_unused()

    def _cancel_unused(self) -> None:
        if self._replaced and not self._waiting:
            self.task.cancel()
