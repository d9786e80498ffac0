"""Handling of a shortage of file descriptors for new connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rejoinder.agent.faults import DESCRIPTORS_FAULT, count_fault

log = logging.getLogger(__name__)

NONE_LEFT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors after which asyncio accepts no connections for a second."""
EPISODE_SECONDS = 60.0
"""A shortage is logged again after this long without one, in seconds."""
RELIEF_SECONDS = 0.5
"""Delay between a shortage and making room, in seconds. asyncio tries again after 1 s."""


def allow_sockets() -> None:
    """Raise the process's limit of open files as far as allowed. The usual limit is 1,024."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS allows fewer than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Listener(socket.socket):
    """A listening socket that reports a shortage of descriptors once a second.

    asyncio calls ``accept`` as often as the backlog is long, 2,048 times, even while no descriptor is left.
    It reports each of these calls and plans an attempt a second later for each (``_accept_connection`` in
    asyncio/selector_events.py).
    """

    _short = False

    def accept(self) -> tuple[socket.socket, Any]:
        """Take one connection. Raises OSError; the first call after a shortage raises BlockingIOError."""
        if self._short:
            self._short = False
            raise BlockingIOError(errno.EAGAIN, "no descriptor was left a moment ago")
        try:
            return super().accept()
        except OSError as error:
            self._short = error.errno in NONE_LEFT
            raise


class Shortage:
    """The event loop's exception handler: one line in the log for each shortage of descriptors.

    relieve: called to make room by dropping idle connections.
    """

    def __init__(self, relieve: Callable[[], None]) -> None:
        self._relieve = relieve
        self._last = -math.inf
        self._planned = -math.inf

    def handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle a shortage; pass all other reports to the loop's default handler."""
        error = context.get("exception")
        if "socket" not in context or not isinstance(error, OSError) or error.errno not in NONE_LEFT:
            loop.default_exception_handler(context)
            return
        now = loop.time()
        if now - self._last >= EPISODE_SECONDS:
            log.error(
                "new connections wait until others close: %s; raise the limit of open files (ulimit -n)",
                error.strerror,
            )
        count_fault(DESCRIPTORS_FAULT)
        self._last = now
        if now >= self._planned:
            self._planned = now + RELIEF_SECONDS
            loop.call_at(self._planned, self._relieve)
