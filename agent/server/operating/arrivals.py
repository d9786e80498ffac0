"""Serves new connections at a limited rate, so that a flood of them leaves the event loop to the calls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

BURST_CONNECTS = 50
"""New connections that are served at once before the rate applies."""


class Arrivals:
    """Lets new connections send their first bytes: in turn by address, and in order within an address.

    So a flood from one address does not delay the first connection of another. per_second: most connections,
    0 for no limit. Connections that wait too long are dropped by their own timers, which bounds how many
    wait. The handshakes of TLS and of WebSockets are what costs time: to accept a connection costs a
    twentieth of the latter.
    """

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._left = float(BURST_CONNECTS)
        self._last = 0.0
        self._waiting: dict[str, deque[tuple[asyncio.Transport, Callable[[], None]]]] = {}

    def add(self, transport: asyncio.Transport, begin: Callable[[], None]) -> None:
        """Take a new connection. begin: called when its turn has come, which may be now."""
        loop = asyncio.get_running_loop()
        if not self._per_second or (not self._waiting and self._take(loop.time())):
            begin()
            return
        transport.pause_reading()
        if not self._waiting:
            loop.call_later(1.0 / self._per_second, self._next)
        peer = transport.get_extra_info("peername")
        self._waiting.setdefault(str(peer[0]) if peer else "", deque()).append((transport, begin))

    def _take(self, now: float) -> bool:
        """Return whether a connection may be read now, and count it."""
        earned = (now - self._last) * self._per_second
        self._left, self._last = min(float(BURST_CONNECTS), self._left + earned), now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def _next(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            address, queue = next(iter(self._waiting.items()))
            while queue and queue[0][0].is_closing():  # the oldest ones are closed first
                queue.popleft()
            if queue and not self._take(loop.time()):
                loop.call_later(1.0 / self._per_second, self._next)
                return
            del self._waiting[address]
            if not queue:
                continue
            transport, begin = queue.popleft()
            if queue:  # the other addresses come before its next connection
                self._waiting[address] = queue
            try:
                begin()
            except Exception as error:  # the others still wait
                transport.abort()
                loop.call_exception_handler(
                    {"message": "a connection was not begun", "exception": error, "transport": transport}
                )
