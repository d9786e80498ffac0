"""Notifications for systemd: ready, stopping, and a watchdog's ping from the event loop.

The protocol is one datagram of lines ``NAME=VALUE`` to the socket in ``NOTIFY_SOCKET``: sd_notify(3) and
sd_watchdog_enabled(3).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping

from rejoinder.agent.server.health import READY

log = logging.getLogger(__name__)

LOOK_INTERVAL = 0.5
"""Most seconds between two looks at the status."""
MICRO = 1_000_000
"""Microseconds in a second: systemd's unit."""


class Notifier:
    """Sends notifications, or nothing outside of systemd. environment: that of the process.

    watchdog: seconds within which systemd expects a ping, 0.0 for none.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        wanted = environment.get("WATCHDOG_USEC", "")
        self.watchdog = int(wanted) / MICRO if address and mine and wanted.isdigit() else 0.0

    def send(self, **state: str) -> None:
        """Send a notification. A failure is logged once, and nothing is sent after it."""
        if self._socket is None:
            return
        lines = "\n".join(f"{name}={value}" for name, value in state.items())
        try:
            self._socket.sendto(lines.encode(), self._address)
        except BlockingIOError:  # systemd is behind; the next ping counts, too
            pass
        except OSError as error:
            log.warning("cannot notify systemd: %s", error.strerror)
            self.close()

    def close(self) -> None:
        """Send no more notifications."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def stopping(self, seconds: float) -> None:
        """Tell that the server drains, and for how long it may take, so that systemd does not kill it."""
        self.send(STOPPING="1", EXTEND_TIMEOUT_USEC=str(int(seconds * MICRO)))

    async def run(self, status: Callable[[], str]) -> None:
        """Ping from the event loop, and tell when the server is ready, until cancelled.

        status: returns the status of ``GET /readyz``.
        """
        if self._socket is None:
            return
        told, interval = "", min(LOOK_INTERVAL, self.watchdog / 3 or LOOK_INTERVAL)
        while True:
            if self.watchdog:
                self.send(WATCHDOG="1")
            if (now := status()) != told:
                told = now
                self.send(STATUS=now, **({"READY": "1"} if now == READY else {}))
            await asyncio.sleep(interval)
