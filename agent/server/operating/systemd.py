"""Notifications for systemd: ready, stopping, and a watchdog's ping from the event loop.

A notification is one datagram with lines ``NAME=VALUE`` to the socket in ``NOTIFY_SOCKET``: sd_notify(3) and
sd_watchdog_enabled(3).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

MOST_INTERVAL_SECONDS = 0.5
"""Longest interval between two looks at the status."""
MICRO = 1_000_000
"""Microseconds in a second: systemd's unit."""


class Notifier:
    """Notifies systemd of the state of the server; does nothing outside of it. environment: of the process.

    watchdog: seconds within which systemd expects a ping, 0.0 for none.
    """

    _failed = False
    _stopping: Mapping[str, str] = {}

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        wanted = environment.get("WATCHDOG_USEC", "")
        self.watchdog = int(wanted) / MICRO if address and is_ours and wanted.isdigit() else 0.0

    def send(self, **state: str) -> bool:
        """Return whether a notification was sent. The first failure is logged."""
        if self._socket is None:
            return False
        lines = "\n".join(f"{name}={value}" for name, value in state.items())
        try:
            self._socket.sendto(lines.encode(), self._address)
        except OSError as error:
            if not (self._failed or isinstance(error, BlockingIOError)):  # systemd may only be late
                log.warning("cannot notify systemd: %s", error.strerror)
                self._failed = True
            return False
        return True

    def close(self) -> None:
        """Send no more notifications."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def stopping(self, seconds: float) -> None:
        """Notify systemd that the server ends by itself within this time, in seconds."""
        self._stopping = {"STOPPING": "1", "EXTEND_TIMEOUT_USEC": str(int(seconds * MICRO))}
        self._send_stopping()

    def _send_stopping(self) -> None:
        if self._stopping and self.send(**self._stopping):
            self._stopping = {}

    async def run(self, loaded: Callable[[], bool], status: Callable[[], str]) -> None:
        """Ping from the event loop, and notify systemd of each change of the status, until cancelled.

        loaded: returns whether the models are loaded: from then on the server counts as started, also while
        a language model elsewhere does not answer. status: a text for people.
        """
        if self._socket is None:
            return
        started, last = False, ""
        interval = min(MOST_INTERVAL_SECONDS, self.watchdog / 3 or MOST_INTERVAL_SECONDS)
        while True:
            if self.watchdog:
                self.send(WATCHDOG="1")
            self._send_stopping()
            if not started and loaded():
                started = self.send(READY="1")
            if (now := status()) != last and self.send(STATUS=now):
                last = now
            await asyncio.sleep(interval)
