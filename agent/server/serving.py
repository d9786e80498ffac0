"""Runs the server: its listening socket, uvicorn's settings, and the signals that end it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.logs import of_libraries
from rejoinder.agent.server.connection import SocketConnection
from rejoinder.agent.server.descriptors import Listener, allow_sockets
from rejoinder.agent.server.http.headers import headers
from rejoinder.agent.server.operating.addresses import on_both_stacks
from rejoinder.agent.server.operating.followed import FollowedFiles
from rejoinder.agent.server.operating.heap import keep_one_heap, trim_heap
from rejoinder.agent.server.operating.systemd import Notifier
from rejoinder.agent.server.operating.tls import Certificate
from rejoinder.agent.server.operating.tls_loop import TLS_LOOP
from rejoinder.agent.server.requests import connections
from rejoinder.agent.server.server import Server
from rejoinder.agent.server.uvicorn_server import FORCED_SECONDS, Uvicorn
from rejoinder.agent.wires.operating.departure import LAST_WORDS_SECONDS
from rejoinder.agent.wires.socket import SEND_BUFFER_BYTES
from rejoinder.models.loading import Away, Report

OWN_LOOP = "asyncio"
"""The name of asyncio's event loop for uvicorn. It would take uvloop, whose sockets the limits do not see."""
MAX_SOCKET_MESSAGE = 15 * 2**20
"""Most bytes in one WebSocket message: the Realtime protocol's limit for appended audio. More closes with
1009."""
RECEIVE_BUFFER_BYTES = 256 * 2**10
"""Bytes that the kernel buffers per socket for receiving."""
KEEPALIVE = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 40_000}
"""Socket options that drop a client after 40 s without a TCP acknowledgement: it is unplugged or
unreachable."""
SWITCH_SECONDS = 0.0005
"""Python's thread switch interval, in seconds. A model's thread needs the interpreter briefly around each
token. With the default of 5 ms it waits that long beside an event loop that is busy with 200 calls."""
SHUTDOWN_SECONDS = 3
"""Longest wait for calls to end on shutdown, in seconds."""


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only if the protocol is given explicitly. With the algorithm a
    # message waits until the client's next frame acknowledges the message before it, 10 ms on average.
    sock = Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)  # accepted sockets inherit it
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
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
    away: Away,
    agent: Agent[Any, Any] | None = None,
    follow: str = "",
) -> Exception | None:
    """Serve until SIGINT, which ends the calls with a close code, or SIGTERM, which drains the server first.

    report, away, agent, follow: as in ``Server``. Returns the error that ended the server, None after an
    orderly end.
    """
    errors: list[Exception] = []

    def failed(error: Exception) -> None:
        errors.append(error)
        server.should_exit = True

    try:
        certificate = open_certificate(settings)
        program = Server(settings, report, failed, away, agent, follow=follow)
    except ConfigError as error:
        return error
    if certificate:
        program.followed.append(FollowedFiles("TLS certificate", certificate.paths, certificate.read))
    allow_sockets()
    sys.setswitchinterval(SWITCH_SECONDS)
    keep_one_heap()
    notifier = Notifier(os.environ)

    async def drain() -> None:
        notifier.stopping(settings.drain_s + LAST_WORDS_SECONDS + SHUTDOWN_SECONDS + FORCED_SECONDS)
        await program.drain()

    async def accompany() -> None:
        if program.followed and hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, program.read_again)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(trim_heap(), name="trim-heap")
            await notifier.run(program.status)

    rate = settings.max_connects_per_s
    server = Uvicorn(web(program, certificate), program.end_streams, drain, accompany, rate)
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn raises the signal again after its orderly end; that would become the exit status.
        signal.signal(number, signal.SIG_IGN)
    server.run(sockets=[sock])
    return errors[0] if errors else None


def open_certificate(settings: Settings) -> Certificate | None:
    """Return the certificate of the settings, None for a server without TLS. Raises ConfigError."""
    if not settings.tls_cert:
        return None
    cert, key = (Path(one).expanduser() if one else None for one in (settings.tls_cert, settings.tls_key))
    assert cert
    try:
        return Certificate(cert, key)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def web(program: Server, certificate: Certificate | None = None) -> uvicorn.Config:
    """Return uvicorn's configuration for the program. certificate: of the server, None for no TLS."""
    tls: dict[str, Any] = {}
    if certificate:
        tls = {"ssl_context_factory": lambda *_: certificate.context}
    return uvicorn.Config(
        program.app(),
        loop=OWN_LOOP if certificate is None else TLS_LOOP,
        # Under TLS the event loop counts connections, before their handshakes.
        http=connections(
            0 if certificate else program.settings.max_connects_per_s, program.settings.handshake_s
        ),
        ws=SocketConnection,
        ws_max_size=MAX_SOCKET_MESSAGE,
        ws_ping_interval=20.0,
        # A pong is read after the audio before it. A late one means backpressure, not a dead client.
        ws_ping_timeout=None,
        log_config=None,  # no handlers of its own
        log_level=of_libraries(program.settings.log_level, program.settings.log_words),
        access_log=False,
        forwarded_allow_ips=on_both_stacks(program.settings.trusted_proxies),
        headers=headers(tls=certificate is not None and not program.settings.local),
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        **tls,
    )
