"""uvicorn's server, extended: it drains on SIGTERM, and makes room when descriptors run out."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import uvicorn

from rejoinder.agent.server.descriptors import Shortage
from rejoinder.agent.server.operating.arrivals import Arrivals
from rejoinder.agent.server.operating.tls_loop import TlsLoop
from rejoinder.agent.server.requests import HttpConnection

log = logging.getLogger(__name__)

SILENT_SECONDS = 0.4
"""In a shortage of descriptors, a connection without a request for this long is dropped, in seconds."""
WAITING_THREADS = 64
"""Most threads of the event loop, which begin as they are needed. Lookups of names run in them, and take 10
seconds and more where no resolver answers: of asyncio's 6 threads on 2 cores, none might be left."""
FORCED_SECONDS = 5.0
"""After a second signal the process ends within this time, in seconds, whatever it is doing."""


class Uvicorn(uvicorn.Server):
    """uvicorn's server. On SIGTERM it calls ``drain`` before it shuts down.

    ending: called before the wait for responses in progress. drain: waits for the calls in progress.
    accompany: runs as long as the server, None for nothing. connects_per_s: most TLS handshakes that begin in
    a second, 0 for no limit.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        ending: Callable[[], None],
        drain: Callable[[], Awaitable[None]],
        accompany: Callable[[], Awaitable[None]] | None = None,
        connects_per_s: int = 0,
    ) -> None:
        super().__init__(config)
        self._drain = drain
        self._ending = ending
        self._accompany = accompany
        self._connects_per_s = connects_per_s
        self._signals = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve. Cancelling leaves the server partly started."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(WAITING_THREADS, "waiting"))
        self._loop.set_exception_handler(Shortage(self._make_room).handle)
        if isinstance(self._loop, TlsLoop) and self._connects_per_s:
            self._loop.arrivals = Arrivals(self._connects_per_s)
        await super().startup(sockets)
        if self._accompany:
            self._start(self._accompany, "accompany")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain on the first SIGTERM. End at once on SIGINT, and on a second signal."""
        self._signals += 1
        if self._signals > 1:
            timer = threading.Timer(FORCED_SECONDS, os._exit, [128 + sig])
            timer.daemon = True
            timer.start()
        if self._signals == 1 and sig == signal.SIGTERM and self.started and self._loop:
            self._loop.call_soon_threadsafe(self._start, self._drained, "drain")
        else:
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop serving. Cancelling leaves connections open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._ending()
        self._drop_waiting(0.0)
        await super().shutdown(sockets)

    async def _drained(self) -> None:
        try:
            await self._drain()
        except Exception:
            log.exception("draining failed")
        finally:
            self.should_exit = True

    def _start(self, run: Callable[[], Awaitable[None]], name: str) -> None:
        async def main() -> None:
            await run()

        self._tasks.append(asyncio.create_task(main(), name=name))

    def _make_room(self) -> None:
        """Drop the connections that have sent no request for ``SILENT_SECONDS``."""
        for each in list(self.server_state.connections):
            if isinstance(each, HttpConnection) and each.waits > SILENT_SECONDS:
                each.transport.abort()
        self._drop_waiting(SILENT_SECONDS)

    def _drop_waiting(self, seconds: float) -> None:
        """Drop the connections that have waited for a TLS handshake at least this long."""
        for gate in list(self._loop.gates) if isinstance(self._loop, TlsLoop) else ():
            if gate.waits >= seconds:
                gate.drop()
