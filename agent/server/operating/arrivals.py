"""Reads new connections at a limited rate, so that a flood of them leaves the event loop to the calls."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from ipaddress import IPv4Network, IPv6Network

from rejoinder.agent.server.limiting.addresses import grouped

BURST_CONNECTS = 50
"""New connections that are read at once before the rate applies."""
QUEUE_SECONDS = 10.0
"""Longest queue, in seconds of the rate. Clients that are dropped come back at once, which costs more than to
let them wait."""

TCP_ESTABLISHED = 1
"""The state of a connection that both sides hold (Linux, include/net/tcp_states.h)."""
TCP_SYN_RECV = 3
"""The state of one that was accepted with its first data, before its handshake ended (TCP Fast Open)."""


class Arrivals:
    """Lets new connections send their first bytes: in turn by address, and in order within an address.

    So a flood from one address does not delay the first connection of another. What costs time is the
    handshake of a WebSocket, and not to accept its connection. The queue is bounded: if it is full, the
    newest connection of the address with most is dropped.

    per_second: most connections, 0 for no limit. exempt: networks whose connections do not wait, such as
    those of proxies.
    """

    def __init__(self, per_second: float, exempt: Sequence[IPv4Network | IPv6Network] = ()) -> None:
        self._per_second = per_second
        self._exempt = exempt
        self._left = float(BURST_CONNECTS)
        self._last = 0.0
        self._count = 0
        self._waiting: dict[str, deque[tuple[asyncio.Transport, Callable[[], None]]]] = {}

    def add(self, transport: asyncio.Transport, begin: Callable[[], None]) -> None:
        """Take a new connection. begin: called when its turn has come, which may be now."""
        peer = transport.get_extra_info("peername")
        address = grouped(str(peer[0]), self._exempt) if peer else ""
        loop = asyncio.get_running_loop()
        if not (self._per_second and address) or (not self._waiting and self._take(loop.time())):
            begin()
            return
        transport.pause_reading()
        loop.call_soon(pause_anew, transport)
        if not self._waiting:
            loop.call_later(1.0 / self._per_second, self._next)
        self._waiting.setdefault(address, deque()).append((transport, begin))
        self._count += 1
        if self._count > QUEUE_SECONDS * self._per_second:
            self._drop()

    def _drop(self) -> None:
        """Drop the newest connection of the address with most."""
        address, queue = max(self._waiting.items(), key=lambda one: len(one[1]))
        transport, _ = queue.pop()
        self._count -= 1
        if not queue:
            del self._waiting[address]
        transport.abort()

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
            while queue and has_left(queue[0][0]):
                transport, _ = queue.popleft()
                transport.abort()
                self._count -= 1
            if queue and not self._take(loop.time()):
                loop.call_later(1.0 / self._per_second, self._next)
                return
            del self._waiting[address]
            if not queue:
                continue
            transport, begin = queue.popleft()
            self._count -= 1
            if queue:  # the other addresses come before its next connection
                self._waiting[address] = queue
            try:
                begin()
            except Exception as error:  # the others still wait
                transport.abort()
                loop.call_exception_handler(
                    {"message": "a connection was not begun", "exception": error, "transport": transport}
                )


def has_left(transport: asyncio.Transport) -> bool:
    """Return whether a client that waits is gone, or has said that it sends nothing more.

    A connection that is not read does not notice it. Only Linux tells the state of a connection.
    """
    if transport.is_closing():
        return True
    connection = transport.get_extra_info("socket")
    if connection is None or sys.platform != "linux":
        return False
    try:
        state: int = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:
        return False
    return state not in (TCP_ESTABLISHED, TCP_SYN_RECV)


def pause_anew(transport: asyncio.Transport) -> None:
    """Pause a connection behind its ``connection_made``, where it still waits.

    asyncio in Python 3.11 before 3.11.5 begins to read behind that method, whatever it did.
    """
    if not (transport.is_closing() or transport.is_reading()):
        transport.resume_reading()
        transport.pause_reading()
