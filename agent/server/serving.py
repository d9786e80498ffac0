"""Run the server: its listening socket, uvicorn's settings, and the signals that end it."""

from __future__ import annotations

import signal
import socket
import sys

import uvicorn

from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.logs import of_libraries
from rejoinder.agent.server.connection import Connection
from rejoinder.agent.server.descriptors import Listener, allow_sockets
from rejoinder.agent.server.http.headers import HEADERS
from rejoinder.agent.server.requests import Requests
from rejoinder.agent.server.server import Server
from rejoinder.agent.server.uvicorn_server import Uvicorn
from rejoinder.models.loading import Away, Report

MAX_MESSAGE = 15 * 2**20
"""Bytes in one WebSocket message: the protocol's own limit for appended audio. More closes with 1009."""
SEND_BUFFER, RECEIVE_BUFFER = 64 * 2**10, 256 * 2**10
"""Bytes the kernel may hold per socket. Left alone it takes megabytes, that is minutes of stale speech."""
KEEPALIVE = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 40_000}
"""After 40 s without a sign of life from its kernel a client is gone: unplugged, or out of reach."""
SWITCH_SECONDS = 0.0005
"""So long a thread keeps Python to itself while others wait for it. Models need it for a moment around each
token, and with Python's own 5 ms they wait that long beside a loop that is busy with 200 calls."""
SHUTDOWN_SECONDS = 3


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off where the protocol is named, and only there: otherwise an answer
    # waits until the caller's next frame acknowledges the event before it, 10 ms on average.
    sock = Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # accepted sockets inherit it
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def serve(settings: Settings, sock: socket.socket, report: Report, away: Away) -> Exception | None:
    """Serve until SIGINT or SIGTERM, which end the calls with a close code.

    report, away: as in ``Server``. Returns the error that kept the models from loading, None after an
    orderly end.
    """
    errors: list[Exception] = []

    def failed(error: Exception) -> None:
        errors.append(error)
        server.should_exit = True

    try:
        program = Server(settings, report, failed, away)
    except ConfigError as error:
        return error
    allow_sockets()
    sys.setswitchinterval(SWITCH_SECONDS)
    server = Uvicorn(web(program), program.end_streams)
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn raises them once more after its orderly end, and that would be the exit status.
        signal.signal(number, signal.SIG_IGN)
    server.run(sockets=[sock])
    return errors[0] if errors else None


def web(program: Server) -> uvicorn.Config:
    """Return how the program is served."""
    return uvicorn.Config(
        program.app(),
        http=Requests,
        ws=Connection,
        ws_max_size=MAX_MESSAGE,
        ws_ping_interval=20.0,
        # A pong waits behind audio that is not taken yet: late, it means backpressure and no dead client.
        ws_ping_timeout=None,
        log_config=None,  # no handlers of its own
        log_level=of_libraries(program.settings.log_level),
        access_log=False,
        headers=HEADERS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
