"""HTTP connections of uvicorn, each with a limit of time for what its client has to send."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from rejoinder.agent.server.request_head import Reader, Refused, answer, check_handshake

if TYPE_CHECKING:
    pass

from rejoinder.agent.server.connection import Connection, dismiss

log = logging.getLogger(__name__)

REQUEST_SECONDS, BODY_SECONDS = 10.0, 60.0
"""How long the head of a request may take, and what follows it: a megabyte over a slow line."""


class Requests(H11Protocol):
    """HTTP on one connection, which is dropped where a request, any of them, does not come whole in time.

    Otherwise whoever can reach the port could hold as many sockets as there are, without a key or a word.
    """

    _waiting: asyncio.TimerHandle | None = None
    _awaited: object = None
    _since = 0.0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn = self._reader = Reader(self._refuse)

    @property
    def waits(self) -> float:
        """Seconds for which the client has sent no whole head; 0.0 while a request is served."""
        idle = self.cycle is None or self.cycle.response_complete
        return self.loop.time() - self._since if idle and not self._reader.refused else 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request; those behind a refused one are discarded, so that the answer arrives."""
        if self._reader.refused:
            return
        super().data_received(data)
        self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand a handshake over to ``Connection``, unless it is malformed. The timer goes on for it."""
        try:
            check_handshake(event)
        except Refused as refused:
            self._reader.refuse(refused)
            return
        super().handle_websocket_upgrade(event)
        cast("Connection", self.transport.get_protocol()).ensure_taken()

    def shutdown(self) -> None:
        """End because the server ends."""
        if self._reader.refused:
            self.transport.abort()
        else:
            super().shutdown()

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn itself waits for its first byte, and no longer."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the socket is gone."""
        super().connection_lost(exc)
        if self._waiting is not None:
            self._waiting.cancel()

    def _refuse(self, refused: Refused) -> None:
        """Say why a request is not answered any further, and close."""
        self._unset_keepalive_if_required()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # for the application the client is gone
            cycle.message_event.set()
        if self._waiting is not None:
            self._waiting.cancel()
        self.flow.resume_reading()
        unanswered = self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE)
        self._waiting = dismiss(self.transport, refused, answer(refused) if unanswered else b"")

    def _watch(self) -> None:
        """Give the client its time for what it has to send next, from when that is known."""
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
            self._waiting = self.loop.call_later(
                BODY_SECONDS if answering else REQUEST_SECONDS, self._give_up
            )

    def _give_up(self) -> None:
        now = self.transport.get_protocol()
        if isinstance(now, Connection) and not now.handshake_complete:
            log.warning("a WebSocket handshake was not over after %g s: it is dropped", REQUEST_SECONDS)
            self.transport.abort()
        elif now is self:
            self.transport.abort()
