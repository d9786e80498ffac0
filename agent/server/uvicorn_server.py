"""uvicorn's server, which ends streams before it waits for them, and makes room when descriptors run out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvicorn

from rejoinder.agent.server.descriptors import Shortage

if TYPE_CHECKING:
    pass

from rejoinder.agent.server.requests import Requests

SILENT_SECONDS = 0.4
"""A client that has not asked for anything for so long makes room where no descriptor is left."""


class Uvicorn(uvicorn.Server):
    """uvicorn's server, which says that it ends before it waits for the answers that are on their way.

    ending: is called then.
    """

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ending = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve. Cancelling leaves it half begun."""
        asyncio.get_running_loop().set_exception_handler(Shortage(self._make_room).handle)
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End. Cancelling leaves connections open."""
        self._ending()
        await super().shutdown(sockets)

    def _make_room(self) -> None:
        """Drop the connections whose clients have not asked for anything yet."""
        for each in list(self.server_state.connections):
            if isinstance(each, Requests) and each.waits > SILENT_SECONDS:
                each.transport.abort()
