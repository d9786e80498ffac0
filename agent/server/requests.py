"""uvicorn's HTTP connections, with a time limit for the client's requests."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from rejoinder.agent.server.connection import SocketConnection, dismiss
from rejoinder.agent.server.operating.arrivals import Arrivals
from rejoinder.agent.server.operating.tls import ClosableTransport
from rejoinder.agent.server.request_head import BadHead, Reader, answer, check_handshake
from rejoinder.agent.settings.operating import HANDSHAKE_SECONDS

log = logging.getLogger(__name__)

TLS_BUFFER_BYTES = 64 * 2**10
"""Unsent bytes from which a sender waits under TLS: asyncio's number for sockets without it."""
BODY_SECONDS = 60.0
"""Longest time for the body of a request, in seconds: a megabyte over a slow line."""


class HttpConnection(H11Protocol):
    """HTTP on one connection. The connection is dropped when a request is not complete in time.

    Without this limit a client could hold all sockets of the process without a key and without a request.
    arrivals: limits the rate of new connections. head_s: longest time for the head of a request, and for the
    handshake of a WebSocket, in seconds.
    """

    arrivals = Arrivals(0)
    head_s = HANDSHAKE_SECONDS
    _waiting: asyncio.TimerHandle | None = None
    _awaited: object = None
    _since = 0.0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn = self._reader = Reader(self._refuse)

    @property
    def waits(self) -> float:
        """Seconds that the connection has been without a complete head; 0.0 while a request is served."""
        idle = self.cycle is None or self.cycle.response_complete
        return self.loop.time() - self._since if idle and not self._reader.refused else 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with the first request, at once or when the connection's turn has come."""
        if transport.get_extra_info("sslcontext"):
            transport = cast("asyncio.Transport", ClosableTransport(transport))
            transport.set_write_buffer_limits(TLS_BUFFER_BYTES)  # asyncio would buffer 512 KiB: 8 s of audio
        super().connection_made(transport)
        self._since = self.loop.time()
        self.arrivals.add(transport, self._begin)

    def _begin(self) -> None:
        """Read the first request, and start its timer."""
        self._watch()
        self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request. Bytes after a refused one are discarded, so that the answer arrives."""
        if self._reader.refused:
            return
        super().data_received(data)
        self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand a handshake to ``SocketConnection``, unless it is malformed. The timer goes on."""
        try:
            check_handshake(event)
        except BadHead as bad:
            self._reader.refuse(bad)
            return
        super().handle_websocket_upgrade(event)
        cast("SocketConnection", self.transport.get_protocol()).ensure_taken()

    def shutdown(self) -> None:
        """End the connection because the server ends."""
        if self._reader.refused:
            self.transport.abort()
        else:
            super().shutdown()

    def on_response_complete(self) -> None:
        """Start the timer for the next request. uvicorn's own timer stops at its first byte."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer: the socket is gone."""
        super().connection_lost(exc)
        if self._waiting is not None:
            self._waiting.cancel()

    def _refuse(self, bad: BadHead) -> None:
        """Answer a request with the refusal, and close."""
        self._unset_keepalive_if_required()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # the application sees a client that has left
            cycle.message_event.set()
        if self._waiting is not None:
            self._waiting.cancel()
        self.flow.resume_reading()
        unanswered = self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE)
        self._waiting = dismiss(self.transport, bad, answer(bad) if unanswered else b"")

    def _watch(self) -> None:
        """Restart the timer whenever the client has to send something else: a head, a body, or nothing."""
        if self._reader.refused:
            return
        cycle = cast("RequestResponseCycle | None", self.cycle)
        answering = cycle is not None and not cycle.response_complete
        whole = cycle is not None and answering and not cycle.more_body
        awaited = None if whole else (cycle, answering)
        if awaited == self._awaited:
            return
        self._awaited, self._since = awaited, self.loop.time()
        if self._waiting is not None:
            self._waiting.cancel()
        if awaited is not None:
            self._waiting = self.loop.call_later(BODY_SECONDS if answering else self.head_s, self._give_up)

    def _give_up(self) -> None:
        now = self.transport.get_protocol()
        if isinstance(now, SocketConnection) and not now.handshake_complete:
            log.warning("a WebSocket handshake was not over after %g s: it is dropped", self.head_s)
            self.transport.abort()
        elif now is self:
            self.transport.abort()


def connections(given: Arrivals, head_seconds: float) -> type[HttpConnection]:
    """Return the class of a server's connections, with ``arrivals`` and ``head_s`` of its own."""

    class LimitedConnection(HttpConnection):
        arrivals = given
        head_s = head_seconds

    return LimitedConnection
