"""The event loop of a server: dead name servers hold up nothing else, and TLS has limits."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

from rejoinder.agent.server.operating.arrivals import Arrivals, pause_anew
from rejoinder.agent.server.operating.lookups import Lookups

HANDSHAKE_SECONDS = 10.0
"""Longest TLS handshake, in seconds: as long as the head of a request may take. asyncio allows 60."""
CLOSING_SECONDS = 3.0
"""Longest wait for a client's answer to the end of TLS, in seconds. asyncio allows 30."""

SERVER_LOOP = f"{__name__}:ServerLoop"
"""Name of the event loop for uvicorn."""


class ServerLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop, with threads of its own for names, and limits on TLS that uvicorn does not set.

    asyncio looks names up in the few threads in which all other blocking work is done, such as the prompts of
    the embedded language model: without a name server, these would wait for it.

    arrivals: limits the rate at which handshakes begin, None for no limit. gates: connections that wait.
    """

    arrivals: Arrivals | None = None

    def __init__(self) -> None:
        super().__init__()
        self.gates: set[TlsGate] = set()
        self._lookups = Lookups()

    async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> Any:
        """Return the addresses of a name. Cancelling stops the wait; the thread goes on. Raises OSError."""
        return await self._lookups.run(partial(socket.getaddrinfo, host, port, **how))

    async def create_server(self, protocol_factory: Any, *given: Any, **named: Any) -> asyncio.Server:
        """Open a server. Cancelling opens none."""
        context = named.get("ssl")
        if context and self.arrivals:
            named["ssl"] = None
            arrivals = self.arrivals
            return await super().create_server(
                lambda: TlsGate(self, context, protocol_factory, arrivals), *given, **named
            )
        if context:
            named["ssl_handshake_timeout"] = HANDSHAKE_SECONDS
            named["ssl_shutdown_timeout"] = CLOSING_SECONDS
        return await super().create_server(protocol_factory, *given, **named)

    async def begin_tls(
        self, sock: socket.socket, context: ssl.SSLContext, protocol_factory: Callable[[], asyncio.Protocol]
    ) -> None:
        """Do the handshake of an accepted socket. A failed one is the client's affair, as it is in asyncio.

        Cancelling closes the socket.
        """
        try:
            await self.connect_accepted_socket(
                protocol_factory,
                sock,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=CLOSING_SECONDS,
            )
        except OSError:  # also those of TLS, and of time
            sock.close()


class TlsGate(asyncio.Protocol):
    """A connection that waits for its turn, before its first byte is read.

    A handshake takes about a millisecond of the event loop, so a flood of them would hold up the calls. In
    its turn the socket goes to a transport with TLS.
    """

    def __init__(
        self,
        loop: ServerLoop,
        context: ssl.SSLContext,
        protocol_factory: Callable[[], asyncio.Protocol],
        arrivals: Arrivals,
    ) -> None:
        self._loop = loop
        self._context = context
        self._protocol_factory = protocol_factory
        self._arrivals = arrivals
        self._since = loop.time()
        self._task: asyncio.Task[None] | None = None

    @property
    def waits(self) -> float:
        """The seconds that it has waited."""
        return self._loop.time() - self._since

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the turn of this connection, ``HANDSHAKE_SECONDS`` at most."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.pause_reading()
        self._loop.gates.add(self)
        self._timer = self._loop.call_later(HANDSHAKE_SECONDS, transport.abort)
        self._arrivals.add(transport, self._begin)
        self._loop.call_soon(pause_anew, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting: the socket is closed here."""
        self._timer.cancel()
        self._loop.gates.discard(self)

    def drop(self) -> None:
        """Close the connection."""
        self._transport.abort()

    def _begin(self) -> None:
        if self._transport.is_closing():
            return
        accepted = self._transport.get_extra_info("socket")
        try:
            sock = accepted.dup()  # the connection stays open with it
        except OSError as error:
            self._transport.abort()
            # Named as asyncio names it for ``accept``: a shortage of descriptors makes room.
            self._loop.call_exception_handler(
                {"message": "a handshake was not begun", "exception": error, "socket": accepted}
            )
            return
        self._transport.abort()
        self._task = self._loop.create_task(self._loop.begin_tls(sock, self._context, self._protocol_factory))
