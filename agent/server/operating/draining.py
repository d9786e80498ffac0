"""The orderly end of a server: no new calls, and time for those in progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from rejoinder.agent.wires.call import WireCall
from rejoinder.agent.wires.operating.departure import LAST_WORDS_SECONDS, SHUTTING_DOWN

log = logging.getLogger(__name__)

DRAIN_CHECK_SECONDS = 0.05
"""Interval between two checks whether all calls are over, in seconds."""
RETRY_SECONDS = 10
"""Value of ``Retry-After`` while the server drains, in seconds."""


class Drain:
    """Whether the server drains, and the end of the calls in progress.

    seconds: for calls to end by themselves. goodbye: spoken in those that go on, "" for nothing.
    elsewhere: the WebSocket address that takes new calls, "" for none. reason: why no call is taken, "" while
    calls are taken.
    """

    def __init__(self, seconds: float, goodbye: str, elsewhere: str = "") -> None:
        self.seconds = seconds
        self.elsewhere = elsewhere
        self.reason = ""
        self._goodbye = goodbye

    def begin(self) -> None:
        """Stop taking calls."""
        where = f"call {self.elsewhere}" if self.elsewhere else "call again in a moment"
        self.reason = f"{SHUTTING_DOWN}: {where}"

    def location(self, path: str, query: str) -> str:
        """Return where a call to this path is to go instead, "" for nowhere."""
        if not self.reason or not self.elsewhere:
            return ""
        return f"{self.elsewhere.rstrip('/')}{path}{'?' if query else ''}{query}"

    async def run(
        self, calls: Collection[WireCall], working: Callable[[], bool], end_absent: Callable[[], None]
    ) -> None:
        """Wait until the calls have ended, then end the others with a goodbye.

        working: whether anything else goes on that clients wait for. end_absent: ends the calls whose clients
        are away, who hear no goodbye. Cancelling ends the wait.
        """
        self.begin()
        if not self.seconds:
            return
        log.info("draining: %d calls in progress have %g s to end", len(calls), self.seconds)
        if await _ended(calls, working, self.seconds):
            log.info("drained: all calls have ended")
            return
        log.warning(
            "draining: %d calls did not end within %g s: they hear a goodbye", len(calls), self.seconds
        )
        end_absent()
        for call in list(calls):
            call.departure.begin(self._goodbye)
        await _ended(calls, lambda: False, LAST_WORDS_SECONDS)


async def _ended(calls: Collection[WireCall], working: Callable[[], bool], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            while calls or working():  # noqa: ASYNC110 - many kinds of work, without an event in common
                await asyncio.sleep(DRAIN_CHECK_SECONDS)
    except TimeoutError:
        return False
    return True
