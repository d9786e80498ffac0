"""The orderly end of a server: no new calls, and time for those in progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress

from rejoinder.agent.wires.call import Call
from rejoinder.agent.wires.departure import LAST_WORDS_SECONDS
from rejoinder.agent.wires.failures import SHUTTING_DOWN

log = logging.getLogger(__name__)

DRAIN_CHECK_SECONDS = 0.05
"""Interval between two checks whether all calls are over, in seconds."""


class Drain:
    """Whether the server drains, and the end of the calls in progress.

    seconds: for calls to end by themselves. goodbye: spoken in those that go on, "" for nothing.

    reason: why no call is taken, "" while calls are taken.
    """

    def __init__(self, seconds: float, goodbye: str) -> None:
        self.reason = ""
        self._seconds = seconds
        self._goodbye = goodbye

    async def run(
        self, calls: Collection[Call], working: Callable[[], bool], end_absent: Callable[[], None]
    ) -> None:
        """Wait until the calls have ended, then end the others with a goodbye.

        working: whether a call is about to begin, or a text request is answered. end_absent: ends the calls
        whose clients have no socket, and hear no goodbye. Cancelling ends the wait.
        """
        self.reason = f"{SHUTTING_DOWN}: call again in a moment"
        if not self._seconds:
            return
        log.info("draining: calls in progress: %d, with %g s to end", len(calls), self._seconds)
        if await _ended(calls, working, self._seconds):
            log.info("drained: all calls have ended")
            return
        if calls:
            text = "draining: calls that did not end in %g s: %d; they end now"
            log.warning(text, self._seconds, len(calls))
        else:
            log.warning("draining: requests that did not end in %g s end now", self._seconds)
        end_absent()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS + 1.0):
                while calls:
                    for call in calls:  # also those that have begun since the last time
                        call.departure.begin(self._goodbye)
                    await asyncio.sleep(DRAIN_CHECK_SECONDS)


async def _ended(calls: Collection[Call], working: Callable[[], bool], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            while calls or working():  # noqa: ASYNC110 - many kinds of work, without an event in common
                await asyncio.sleep(DRAIN_CHECK_SECONDS)
    except TimeoutError:
        return False
    return True
