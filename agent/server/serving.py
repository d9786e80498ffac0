"""Runs the server: its listening socket, uvicorn's settings, and the signals that end it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from typing import Any

import uvicorn

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.logs import of_libraries
from rejoinder.agent.server.connection import SocketConnection
from rejoinder.agent.server.descriptors import Listener, allow_sockets
from rejoinder.agent.server.http.headers import headers
from rejoinder.agent.server.operating.arrivals import Arrivals
from rejoinder.agent.server.operating.followed import FollowedFiles
from rejoinder.agent.server.operating.heap import keep_one_heap, trim_heap
from rejoinder.agent.server.operating.proxies import on_both_stacks
from rejoinder.agent.server.operating.server_loop import SERVER_LOOP
from rejoinder.agent.server.operating.systemd import Notifier
from rejoinder.agent.server.operating.tls import Certificate, open_certificate
from rejoinder.agent.server.requests import connections
from rejoinder.agent.server.server import Server
from rejoinder.agent.server.uvicorn_server import Uvicorn
from rejoinder.agent.settings.networks import networks
from rejoinder.models.loading import Report, Unreachable

MAX_SOCKET_MESSAGE = 15 * 2**20
"""Most bytes in one WebSocket message: the Realtime protocol's limit for appended audio. More closes with
1009."""
SEND_BUFFER = 64 * 2**10
"""Bytes that the kernel buffers per socket for sending. Its default is megabytes: minutes of stale speech."""
RECEIVE_BUFFER = 256 * 2**10
"""Bytes that the kernel buffers per socket for receiving."""
KEEPALIVE = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 40_000}
"""Socket options that drop a client after 40 s without a TCP acknowledgement: it is unplugged or
unreachable."""
SWITCH_SECONDS = 0.0005
"""Python's thread switch interval, in seconds. A model's thread needs the interpreter briefly around each
token. With the default of 5 ms it waits that long beside an event loop that is busy with 200 calls."""
SHUTDOWN_SECONDS = 3
"""Longest wait for calls to end on shutdown, in seconds."""
END_SECONDS = 20.0
"""Longest time from the end of ``drain_s`` to that of the process, in seconds."""


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only if the protocol is given explicitly. With the algorithm a
    # message waits until the client's next frame acknowledges the message before it, 10 ms on average.
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


def serve(
    settings: Settings,
    sock: socket.socket,
    report: Report,
    away: Unreachable,
    agent: Agent | None = None,
    followed: str = "",
) -> Exception | None:
    """Serve until SIGINT, which ends the calls with a close code, or SIGTERM, which lets them end before.

    report, away, agent, followed: as in ``Server``. Returns the error that ended the server, None after an
    orderly end.
    """
    errors: list[Exception] = []

    def failed(error: Exception) -> None:
        errors.append(error)
        server.should_exit = True

    try:
        certificate = open_certificate(settings)
        paths, read = (certificate.paths, certificate.read) if certificate else ([], lambda: None)
        certificate_files = FollowedFiles("TLS certificate", paths, read)
        program = Server(settings, report, failed, away, agent, followed=followed)
    except ConfigError as error:
        return error
    if certificate:
        program.followed_files.append(certificate_files)
    allow_sockets()
    sys.setswitchinterval(SWITCH_SECONDS)
    keep_one_heap()
    notifier = Notifier(os.environ)

    async def drain() -> None:
        notifier.stopping(settings.drain_s + END_SECONDS)
        await program.drain()

    async def run() -> None:
        notifying = notifier.run(lambda: program.models is not None, program.status)
        if program.followed_files and hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, program.read_again)
        beside = [
            asyncio.create_task(notifying, name="systemd"),
            asyncio.create_task(trim_heap(), name="trim-heap"),
        ]
        try:
            await server.serve([sock])
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
            notifier.close()

    handshakes = arrivals_of(settings) if certificate and settings.max_connects_per_s else None
    server = Uvicorn(web(program, certificate), program.end_streams, drain, handshakes)
    early = [signal.SIGHUP] if program.followed_files and hasattr(signal, "SIGHUP") else []
    for number in (signal.SIGINT, signal.SIGTERM, *early):
        # uvicorn raises the signal again after its orderly end; that would become the exit status.
        signal.signal(number, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(run())
    return errors[0] if errors else None


def arrivals_of(settings: Settings) -> Arrivals:
    """Return what limits the rate of new connections."""
    return Arrivals(settings.max_connects_per_s, networks(settings.trusted_proxies))


def web(program: Server, certificate: Certificate | None = None) -> uvicorn.Config:
    """Return uvicorn's configuration for the program.

    certificate: of the server, None for no TLS. With TLS, the event loop limits the rate of new connections,
    before their handshakes.
    """
    settings = program.settings
    arrivals = Arrivals(0) if certificate else arrivals_of(settings)
    tls: dict[str, Any] = {"ssl_context_factory": lambda *_: certificate.context} if certificate else {}
    return uvicorn.Config(
        program.app(),
        http=connections(arrivals, settings.handshake_s),
        ws=SocketConnection,
        # Not uvloop, which Ray installs: it does not report a shortage of descriptors.
        loop=SERVER_LOOP,
        ws_max_size=MAX_SOCKET_MESSAGE,
        ws_ping_interval=20.0,
        # A pong is read after the audio before it. A late one means backpressure, not a dead client.
        ws_ping_timeout=None,
        log_config=None,  # no handlers of its own
        log_level=of_libraries(settings.log_level, settings.log_words),
        access_log=False,
        forwarded_allow_ips=on_both_stacks(settings.trusted_proxies),
        headers=headers(tls=certificate is not None and not settings.local),
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        **tls,
    )
