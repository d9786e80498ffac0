"""The cancelled tasks of a session, until they have ended."""

from __future__ import annotations

import asyncio


class CancelledTasks:
    """Keeps cancelled tasks until they have ended. Its length is the number that have not."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: asyncio.Task[None]) -> None:
        """Keep a task that was cancelled."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel_again(self) -> None:
        """Cancel the tasks once more, in case one of them did not end."""
        for task in self._tasks:
            task.cancel()

    async def wait(self) -> None:
        """Wait until all have ended. Cancelling stops the wait only."""
        if self._tasks:
            await asyncio.wait(self._tasks)
