"""Loopback ports for servers that a test starts."""

from __future__ import annotations

import socket
import subprocess
import time
from collections import deque
from contextlib import ExitStack

from rejoinder.agent.server.own_server import held_port

MOST_HELD = 64
"""Ports that are held at the same time. The server of the one before them has ended."""
HELD: deque[ExitStack] = deque()


def unused_port() -> int:
    """Return a loopback port on which a server may listen, and which no other process gets meanwhile."""
    if len(HELD) == MOST_HELD:
        HELD.popleft().close()
    HELD.append(ExitStack())
    return HELD[-1].enter_context(held_port())


def listens(port: int, process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait until a server answers on a loopback port, and return whether it does.

    It does not if its process has ended, or has taken longer than ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            time.sleep(0.02)
        else:
            return True
    return False
