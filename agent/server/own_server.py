"""Runs the server in a child process, for commands that bring their own: talk, demo and the benches."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import IO

from rich.console import Console

from rejoinder.agent.server.health import LOADING, READY
from rejoinder.pipeline.errors import PipelineError

READY_SECONDS = 600.0
"""Longest wait until the server is ready, in seconds: a large language model is read and compiled first."""
STOP_SECONDS = 15.0
"""Longest wait for the server to end after SIGTERM, in seconds. Then it is killed."""
MAX_WARNINGS = 10
"""Most lines of the server's log that are shown at its end."""
ISOLATED = {
    "REJOINDER_API_KEYS": "",
    "REJOINDER_API_KEYS_FILE": "",
    "REJOINDER_TLS_CERT": "",
    "REJOINDER_TLS_KEY": "",
    "REJOINDER_AUDIOSOCKET_PORT": "0",
    "REJOINDER_WYOMING_PORT": "0",
    "REJOINDER_GREETING": "",
    "REJOINDER_LOG_FORMAT": "pretty",
    "REJOINDER_DRAIN_S": "0",
}
"""Settings of the child process. It serves only this machine, so it needs neither keys nor TLS. Another
server may already use the other ports. In demo and benches the caller speaks first, so there is no greeting.
At its end no call is worth waiting for."""


AGENT = "agent"
"""The flag that is an argument of ``rejoinder serve``: the integrator's agent."""


class ServerFailed(PipelineError):
    """The server did not start. The message ends with the server's output."""


def command_line(port: int, flags: Mapping[str, str | None]) -> list[str]:
    """Return the command that serves on a loopback port. Flags that are None are left out.

    flags: options of ``rejoinder serve`` by name, and its argument ``AGENT``.
    """
    command = [
        sys.executable,
        "-m",
        "rejoinder",
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    for name, value in flags.items():
        if value is not None:
            command += [value] if name == AGENT else [f"--{name}", value]
    return command


@asynccontextmanager
async def own_server(
    flags: Mapping[str, str | None],
    console: Console | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[str]:
    """Serve for the length of the block and yield the WebSocket's URL, with tracing switched on.

    flags: options of ``rejoinder serve`` by name. console: shows a status while the server starts, and the
    last warnings of its log at the end. environment: further environment variables. Raises ServerFailed when
    the server is not ready in time. Cancelling ends the server.
    """
    async with own_process(flags, console, environment) as (url, _):
        yield url


@asynccontextmanager
async def own_process(
    flags: Mapping[str, str | None],
    console: Console | None = None,
    environment: Mapping[str, str] | None = None,
    port: int = 0,
    log: Path | None = None,
) -> AsyncIterator[tuple[str, int]]:
    """Serve for the length of the block and yield the WebSocket's URL and the process's number.

    The other arguments are those of ``own_server``. port: one from ``held_port``, 0 for any free one. log:
    the file to which the output of the server is appended, None to keep none. SIGTERM ends the block and the
    server, and then this process with the status 143. Cancelling ends the server.
    """
    with (
        nullcontext(port) if port else held_port() as port,
        log.open("a+b") if log else tempfile.TemporaryFile() as said,
        _ending_by_signal(),
    ):
        process = await asyncio.create_subprocess_exec(
            *command_line(port, flags),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**os.environ, **ISOLATED, **(environment or {})},
        )
        try:
            with (console or Console(quiet=True)).status("starting the server and loading its models"):
                await _until_ready(port, process, said)
            yield f"ws://127.0.0.1:{port}/v1/realtime?model=default&trace=true&hold=true", process.pid
        finally:
            await _stop(process)
            if console is not None:
                _show(said, console)


@contextmanager
def _ending_by_signal() -> Iterator[None]:
    loop, task, ended = asyncio.get_running_loop(), asyncio.current_task(), False

    def end() -> None:
        nonlocal ended
        ended = True
        if task:
            task.cancel()

    try:
        loop.add_signal_handler(signal.SIGTERM, end)
    except (ValueError, RuntimeError):  # only the main thread gets signals
        yield
        return
    try:
        yield
    except asyncio.CancelledError:
        if ended:
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


@contextmanager
def held_port() -> Iterator[int]:
    """Yield a free loopback port on which a server may listen, and which no other process gets meanwhile.

    Linux allows a second socket with SO_REUSEADDR as long as only one of them listens. Other systems do not:
    there, another process may get the port before the server does.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        if sys.platform != "linux":
            held.close()
        yield port


async def _until_ready(port: int, process: asyncio.subprocess.Process, said: IO[bytes]) -> None:
    try:
        async with asyncio.timeout(READY_SECONDS):
            reason = ""
            while process.returncode is None and not reason:
                status = await _status(port)
                if status == READY:
                    return
                reason = status if status != LOADING else ""
                await asyncio.sleep(0.1)
        reason = reason or f"it ended with status {process.returncode}"
    except TimeoutError:
        reason = f"it was not ready within {READY_SECONDS:.0f} s"
    said.seek(0)
    words = said.read().decode("utf-8", "replace").strip()
    raise ServerFailed(f"the server did not start: {reason}\n{words[-2000:]}".rstrip())


def _show(said: IO[bytes], console: Console) -> None:
    """Print the last warnings and errors of the server's log."""
    said.seek(0)
    lines = said.read().decode("utf-8", "replace").splitlines()
    warned = [line for line in lines if any(level in line for level in (" WARNING ", " ERROR "))]
    for line in warned[-MAX_WARNINGS:]:
        console.print(f"server: {line}", markup=False, highlight=False, soft_wrap=True)


async def _status(port: int) -> str:
    """Return the status at ``/readyz``; ``LOADING`` while the server does not answer."""
    # Plain sockets: an HTTP client would use the environment's proxy, even for loopback.
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return LOADING
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        body = (await reader.read()).partition(b"\r\n\r\n")[2]
        return str(json.loads(body)["status"])
    except (OSError, ValueError):
        return LOADING
    finally:
        writer.close()


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
