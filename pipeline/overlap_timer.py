"""The timer of a sound over the agent: a client may stop sending the audio that would decide it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

MAX_OVERLAP_SECONDS = 3.0
"""Longest wait for a decision on a sound over the agent. The floor counts samples, which a client may stop
sending."""


class OverlapTimer:
    """Calls ``expired`` if it is not stopped within ``MAX_OVERLAP_SECONDS``."""

    def __init__(self, expired: Callable[[], None]) -> None:
        self._expired = expired
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the wait anew. It needs a running event loop."""
        self.stop()
        self._handle = asyncio.get_running_loop().call_later(MAX_OVERLAP_SECONDS, self._expired)

    def stop(self) -> None:
        """Stop the wait, if there is one."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
