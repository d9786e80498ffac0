"""Recorded audio on its way from PortAudio's thread to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

HANDOVER_BLOCKS = 50
"""Most recorded blocks (one second) that wait for a busy loop; after that the oldest are dropped."""


class Handover:
    """Passes recorded blocks from PortAudio's thread to the event loop that created this object.

    dropped: number of blocks that were dropped because the loop was busy.
    """

    def __init__(self, size: int = HANDOVER_BLOCKS) -> None:
        self.dropped = 0
        self._size = size
        self._blocks: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def put(self, block: bytes) -> None:
        """Add a block. Any thread may call this; it never waits."""
        with self._lock:
            if len(self._blocks) >= self._size:
                self._blocks.popleft()
                self.dropped += 1
            self._blocks.append(block)
        self._wake()

    def close(self) -> None:
        """End the stream after the queued blocks. Any thread may call this."""
        self._closed = True
        self._wake()

    async def get(self) -> bytes | None:
        """Return the next block, or None at the end of the stream. Cancelling loses no block."""
        while True:
            self._changed.clear()
            with self._lock:
                if self._blocks:
                    return self._blocks.popleft()
                if self._closed:  # outside of the lock, a block could have come in between
                    return None
            await self._changed.wait()

    def _wake(self) -> None:
        if not self._loop.is_closed():  # a device may outlive the conversation by a block
            self._loop.call_soon_threadsafe(self._changed.set)
