"""uvicorn's server, extended: it drains on SIGTERM, and makes room when descriptors run out."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable
from types import FrameType

import uvicorn

from rejoinder.agent.server.descriptors import Shortage
from rejoinder.agent.server.operating.arrivals import Arrivals
from rejoinder.agent.server.operating.server_loop import ServerLoop
from rejoinder.agent.server.requests import HttpConnection

log = logging.getLogger(__name__)

SILENT_SECONDS = 0.4
"""In a shortage of descriptors, a connection without a request for this long is dropped, in seconds."""


class Uvicorn(uvicorn.Server):
    """uvicorn's server. On SIGTERM it drains before it shuts down.

    ending: called before the wait for responses in progress. drain: waits for the calls in progress.
    handshakes: limits the rate of TLS handshakes, None for no limit.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        ending: Callable[[], None],
        drain: Callable[[], Awaitable[None]],
        handshakes: Arrivals | None = None,
    ) -> None:
        super().__init__(config)
        self._ending = ending
        self._drain = drain
        self._handshakes = handshakes
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._signals = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve. Cancelling leaves the server partly started."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(Shortage(self._make_room).handle)
        if isinstance(self._loop, ServerLoop):
            self._loop.arrivals = self._handshakes
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain on the first SIGTERM. End at once on SIGINT, and on a second signal."""
        self._signals += 1
        if self._signals == 1 and sig == signal.SIGTERM and self.started and self._loop:
            self._loop.call_soon_threadsafe(self._begin_to_drain)
        else:
            super().handle_exit(sig, frame)  # a further SIGINT ends without waiting

    def _begin_to_drain(self) -> None:
        self._draining = asyncio.create_task(self._drained(), name="drain")

    async def _drained(self) -> None:
        try:
            await self._drain()
        except Exception:
            log.exception("draining failed")
        finally:
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop serving. Cancelling leaves connections open."""
        if self._draining:
            self._draining.cancel()
            await asyncio.wait([self._draining])
        self._ending()
        self._drop_waiting(0.0)
        await super().shutdown(sockets)

    def _make_room(self) -> None:
        """Drop the connections that have sent no request for ``SILENT_SECONDS``."""
        for each in list(self.server_state.connections):
            if isinstance(each, HttpConnection) and each.waits > SILENT_SECONDS:
                each.transport.abort()
        self._drop_waiting(SILENT_SECONDS)

    def _drop_waiting(self, seconds: float) -> None:
        """Drop the connections that have waited for a TLS handshake at least this long."""
        for gate in list(self._loop.gates) if isinstance(self._loop, ServerLoop) else ():
            if gate.waits >= seconds:
                gate.drop()
