"""A real Redis server on loopback."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis
from support.ports import listens, unused_port


class RedisServer:
    """A Redis server that keeps nothing on the disk. url: of a database, the same after each ``start``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = unused_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, empty, and wait until it answers."""
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("there is no redis-server: Debian's package of that name has one")
        options = ["--bind", "127.0.0.1", "--port", str(self._port), "--save", "", "--dir", str(self._folder)]
        self._process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
        assert listens(self._port, self._process, 20.0), "Redis has not started"

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
