"""Two call servers of this machine with one store, and HAProxy in front of them."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.paths import ROOT
from support.serving import PATIENCE, Server, serving

from rejoinder.agent.bench.balancing import HAPROXY_PLACES, SERVER_NAMES, Balancer, balancing
from rejoinder.agent.server.own_server import free_port

HAPROXY = ROOT / "deploy" / "balancer" / "haproxy.cfg"


def haproxy() -> str:
    """Return the path of the program."""
    program = shutil.which("haproxy") or shutil.which("haproxy", path=HAPROXY_PLACES)
    assert program, "apt-get install haproxy"
    return program


class Pair:
    """The servers by their names, the balancer, and the balancer as a server to call. It is made by ``pair``.

    Each server may be killed or ended, and started again on its port.
    """

    balancer: Balancer
    door: Server

    def __init__(self, folder: Path, **settings: str) -> None:
        self._folder = folder
        self._settings = settings
        self._running: dict[str, ExitStack] = {}
        self.servers: dict[str, Server] = {}
        self.ports = {name: free_port() for name in SERVER_NAMES}
        self.audiosocket = {name: free_port() for name in SERVER_NAMES}

    def start(self, name: str) -> None:
        """Start a server, and wait until it is ready."""
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        self._running[name] = stack = ExitStack()
        settings = {**self._settings, "audiosocket_port": str(self.audiosocket[name])}
        running = serving(folder, port=self.ports[name], clean=False, **settings)
        self.servers[name] = stack.enter_context(running)

    def end(self, name: str, number: signal.Signals = signal.SIGTERM, patience: float = PATIENCE) -> int:
        """Send a server a signal, and return its status when it has ended."""
        process = self.servers[name].process
        process.send_signal(number)
        status = process.wait(patience)
        self._running.pop(name).close()
        return status

    def close(self) -> None:
        for stack in self._running.values():
            stack.close()

    def busiest(self) -> str:
        """Return the name of the server that holds most calls."""
        return max(self.servers, key=lambda name: self.servers[name].sessions())


@contextmanager
def pair(folder: Path, store: str, **settings: str) -> Iterator[Pair]:
    """Serve for the length of the block. store: the URL of the conversations."""
    servers = Pair(folder, conversations=store, **settings)
    try:
        for name in SERVER_NAMES:
            servers.start(name)
        running = balancing(HAPROXY, list(servers.ports.values()), list(servers.audiosocket.values()))
        with asyncio.Runner() as runner:
            servers.balancer = runner.run(running.__aenter__())
            try:
                first = servers.servers[SERVER_NAMES[0]]
                servers.door = Server(servers.balancer.port, first.process, first.log)
                yield servers
            finally:
                runner.run(running.__aexit__(None, None, None))
    finally:
        servers.close()
