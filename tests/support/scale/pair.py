"""Two call servers of this machine, and HAProxy in front of them."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen

from support.paths import ROOT
from support.ports import listens, unused_port
from support.serving import PATIENCE, Server, serving

HAPROXY = ROOT / "deploy" / "balancer" / "haproxy.cfg"
PLACES = "/usr/sbin:/usr/local/sbin"
"""Folders in which packages put balancers, and which may be missing in a user's PATH."""
NAMES = ("a", "b")
"""The names of the servers in the configuration."""


def program(name: str) -> str:
    """Return the path of a balancer."""
    found = shutil.which(name) or shutil.which(name, path=PLACES)
    assert found, f"apt-get install {name}"
    return found


class Pair:
    """The servers by their names, and the balancer as a server to call. It is made by ``pair``.

    Each server may be killed or ended, and started again on its port.
    """

    balancer: Server
    audiosocket: int

    def __init__(self, folder: Path, **settings: str) -> None:
        self._folder = folder
        self._settings = settings
        self._running: dict[str, ExitStack] = {}
        self._status = unused_port()
        self.servers: dict[str, Server] = {}
        self.ports = {name: unused_port() for name in NAMES}
        self._audiosockets = {name: unused_port() for name in NAMES}

    def start(self, name: str) -> None:
        """Start a server, and wait until it is ready."""
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        self._running[name] = stack = ExitStack()
        settings = {**self._settings, "audiosocket_port": str(self._audiosockets[name])}
        running = serving(folder, port=self.ports[name], clean=False, **settings)
        self.servers[name] = stack.enter_context(running)

    def end(self, name: str, number: signal.Signals = signal.SIGTERM, patience: float = PATIENCE) -> int:
        """Send a server a signal, and return its status when it has ended."""
        self.servers[name].process.send_signal(number)
        return self.ended(name, patience)

    def ended(self, name: str, patience: float = PATIENCE) -> int:
        """Wait for the end of a server, and return its status."""
        status = self.servers[name].process.wait(patience)
        self._running.pop(name).close()
        return status

    def close(self) -> None:
        for stack in self._running.values():
            stack.close()

    def busiest(self) -> str:
        """Return the name of the server that holds most calls."""
        return max(self.servers, key=lambda name: self.servers[name].sessions())

    @contextmanager
    def balanced(self) -> Iterator[None]:
        """Run HAProxy with the configuration that ships, for the length of the block."""
        port, self.audiosocket = unused_port(), unused_port()
        environment = {
            "BALANCER_BIND": f"127.0.0.1:{port}",
            "BALANCER_AUDIOSOCKET_BIND": f"127.0.0.1:{self.audiosocket}",
            "BALANCER_STATUS_BIND": f"127.0.0.1:{self._status}",
            **{f"BALANCER_{name.upper()}": f"127.0.0.1:{self.ports[name]}" for name in NAMES},
            **{
                f"BALANCER_{name.upper()}_AUDIOSOCKET": f"127.0.0.1:{self._audiosockets[name]}"
                for name in NAMES
            },
        }
        log = self._folder / "haproxy.log"
        command = [program("haproxy"), "-db", "-f", str(HAPROXY)]
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **environment})
        self.balancer = Server(port, process, log)
        try:
            assert listens(port, process, PATIENCE), log.read_text()
            self.until_ready(set(NAMES))
            yield
        finally:
            process.kill()  # SIGTERM would do the same; SIGUSR1 would wait for its connections
            process.wait()

    def until_ready(self, names: set[str]) -> None:
        """Wait until HAProxy sends new calls to these servers, and to no others."""
        deadline = time.monotonic() + PATIENCE
        while (found := self._ready()) != names:
            assert time.monotonic() < deadline, f"HAProxy sends calls to {sorted(found)}"
            time.sleep(0.05)

    def _ready(self) -> set[str]:
        with urlopen(f"http://127.0.0.1:{self._status}/;csv", timeout=PATIENCE) as answer:
            rows = csv.DictReader(answer.read().decode().removeprefix("# ").splitlines())
        up = {row["svname"] for row in rows if row["pxname"] == "calls" and row["status"].startswith("UP")}
        return up & set(NAMES)


@contextmanager
def pair(folder: Path, **settings: str) -> Iterator[Pair]:
    """Serve for the length of the block."""
    servers = Pair(folder, **settings)
    try:
        for name in NAMES:
            servers.start(name)
        with servers.balanced():
            yield servers
    finally:
        servers.close()
