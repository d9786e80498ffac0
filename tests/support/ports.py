"""Loopback ports for servers that a test starts."""

from __future__ import annotations

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
