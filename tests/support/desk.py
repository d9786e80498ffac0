"""A desk: a real MCP server in a process of its own, and what it wrote down."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.forks.forking import Fork, ready_address
from support.paths import ROOT
from support.serving import PATIENCE

from rejoinder.agent.app.mcp.server import McpServer
from rejoinder.agent.server.own_server import free_port

SERVERS = ROOT / "tests" / "support" / "servers"
SCRIPT, FORKED = str(SERVERS / "desk.py"), str(SERVERS / "forked.py")
KINDS = ("stdio", "stdio legacy", "http", "http legacy")


class Desk:
    """The server over one transport (``KINDS``)."""

    def __init__(self, kind: str, journal: Path) -> None:
        self.transport, _, self.era = kind.partition(" ")
        self.journal = journal
        self.port = free_port()
        self._process: Fork | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def server(self, forked: bool = True, **options: Any) -> McpServer:
        """Return what an agent is given. forked: over stdio, start no interpreter for it."""
        if self.transport == "http":
            return McpServer.http(self.url, name="desk", **options)
        env = {"JOURNAL": str(self.journal)}
        if not forked:
            return McpServer.stdio(sys.executable, SCRIPT, "stdio", self.era, env=env, **options)
        way = ["-IS", FORKED, ready_address(), SCRIPT, "stdio", self.era]
        return McpServer.stdio(sys.executable, *way, name="desk", env=env, **options)

    def start(self) -> None:
        if self.transport == "stdio":
            return  # the connection starts it
        begun = len(self.noted("started"))
        said = self.journal.with_name("desk.log")
        given = ["http", str(self.port), self.era]
        environment = {**os.environ, "JOURNAL": str(self.journal)}
        self._process = Fork(given, self.journal.parent, environment, said, said, Path(SCRIPT))
        for _ in range(600):
            if len(self.noted("started")) > begun and self._answers():
                return
            time.sleep(0.05)
        raise AssertionError("the MCP server has not started")

    def kill(self) -> None:
        """End the newest process at once."""
        os.kill(int(self.noted("started")[-1].split()[1]), signal.SIGKILL)
        if self._process:
            self._process.wait(PATIENCE)

    def noted(self, begins: str = "") -> list[str]:
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [line for line in lines if line.startswith(begins)]

    async def notes(self, line: str) -> None:
        """Wait until the server has written a line that begins like this."""
        async with asyncio.timeout(20.0):
            while not self.noted(line):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def stop(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(PATIENCE)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def desk(kind: str, folder: Path) -> Iterator[Desk]:
    """Run a desk for the length of the block."""
    one = Desk(kind, folder / "journal")
    try:
        one.start()
        yield one
    finally:
        one.stop()
