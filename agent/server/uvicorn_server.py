"""uvicorn's server, extended: it ends streams on shutdown, and makes room when descriptors run out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import uvicorn

from rejoinder.agent.server.descriptors import Shortage
from rejoinder.agent.server.requests import HttpConnection

SILENT_SECONDS = 0.4
"""In a shortage of descriptors, a connection without a request for this long is dropped, in seconds."""


class Uvicorn(uvicorn.Server):
    """uvicorn's server. On shutdown it calls ``ending`` before it waits for responses in progress."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ending = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve. Cancelling leaves the server partly started."""
        asyncio.get_running_loop().set_exception_handler(Shortage(self._make_room).handle)
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop serving. Cancelling leaves connections open."""
        self._ending()
        await super().shutdown(sockets)

    def _make_room(self) -> None:
        """Drop the connections that have sent no request for ``SILENT_SECONDS``."""
        for each in list(self.server_state.connections):
            if isinstance(each, HttpConnection) and each.waits > SILENT_SECONDS:
                each.transport.abort()
