"""The commit gate of a reply: before it opens, nothing is heard, remembered or acted on."""

from __future__ import annotations

import asyncio


class CommitGate:
    """Opens once, when its reply is committed. It also stops a reply while that is paused.

    ``Output`` opens, pauses and resumes it. The stages wait at it before they send.
    """

    def __init__(self) -> None:
        self._committed = asyncio.Event()
        self._running = asyncio.Event()
        self._running.set()

    @property
    def committed(self) -> bool:
        """Whether the reply may be heard, remembered and acted on."""
        return self._committed.is_set()

    @property
    def paused(self) -> bool:
        """Whether the reply is paused."""
        return not self._running.is_set()

    def commit(self) -> None:
        """Open the gate. It never closes again."""
        self._committed.set()

    def pause(self) -> None:
        """Stop what waits for ``wait_running``."""
        self._running.clear()

    def resume(self) -> bool:
        """Continue after ``pause``; return whether the reply was paused."""
        was_paused = self.paused
        self._running.set()
        return was_paused

    async def wait_committed(self) -> None:
        """Wait for the commit. Cancelling changes nothing."""
        await self._committed.wait()

    async def wait_running(self) -> None:
        """Wait while the reply is paused. Cancelling changes nothing."""
        await self._running.wait()
