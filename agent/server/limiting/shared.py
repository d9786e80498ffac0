"""Reports the use of this server to the store of all servers, and asks there whether more may begin."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

from rejoinder.agent.metrics.measures import Measurement
from rejoinder.agent.metrics.meters import Meters
from rejoinder.agent.server.denial import Denial
from rejoinder.agent.server.limiting.allowance import Use, refusal
from rejoinder.agent.server.limiting.limits import Claim, Limits
from rejoinder.agent.server.limiting.redis import RedisUse

log = logging.getLogger(__name__)

LIMITS_WAIT_S = 0.5
"""Longest wait of a call or a request for the store, in seconds. While the store is away, none waits."""
REPORT_S = 1.0
"""Interval between two reports of audio and tokens, in seconds. A key may use that much beyond its limit."""
COALESCE_S = 0.02
"""Wait before a report of a call that has begun or ended, in seconds: several come together."""
RENEW_S = 3.0
"""Interval between two reports of all calls, in seconds: each lease has three chances."""
STORE_AWAY_SECONDS = 5
"""Value of ``Retry-After`` while the store is away, in seconds."""
UNCHECKED = Denial(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "the limits cannot be checked now: try again in a few seconds",
    STORE_AWAY_SECONDS,
)
"""The refusal while the store is away, where nothing with a limit begins without it."""


class SharedUse:
    """The use of all servers with the same store.

    limits: of this server. closed: whether nothing with a limit begins while the store is away; otherwise
    each server's own use decides. meters: count what begins or not while it is away.
    """

    def __init__(self, limits: Limits, store: RedisUse, closed: bool, meters: Meters) -> None:
        self._limits = limits
        limits.reported = True
        self._store = store
        self._closed = closed
        self._meters = meters
        self._wake = asyncio.Event()
        self._here = False
        self._said = True
        self._all_at = 0.0
        self._ending = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Report for the length of the block, and what is left at its end.

        Cancelling may lose the last report.
        """
        await self._report()
        reporting = asyncio.create_task(self._report_all(), name="limits")
        try:
            yield
        finally:
            self._ending = True  # redis-py 8.1 swallows some cancels
            reporting.cancel()
            await asyncio.wait([reporting])
            await self._leave()
            await self._store.aclose()

    async def begin(self, claims: Sequence[Claim]) -> Denial | None:
        """Count a call or request that this server has counted, or return why it may not begin.

        It waits at most ``LIMITS_WAIT_S``. Cancelling stops the wait; the next report mends the count.
        """
        if self._here:
            try:
                async with asyncio.timeout(LIMITS_WAIT_S):
                    uses = await self._store.begin(claims, self._limits.tally.day)
            except Exception as error:
                self._lost(error)
            else:
                return self._decided(claims, uses)
            finally:
                self.wake()
        outcome = "refused" if self._closed else "begun"
        self._meters.record([Measurement("unchecked_limits", labels=(outcome,))])
        return UNCHECKED if self._closed else None

    def wake(self) -> None:
        """Report soon: a call has begun or ended."""
        self._wake.set()

    def _decided(self, claims: Sequence[Claim], uses: Sequence[Use]) -> Denial | None:
        if not uses:
            return None
        found = [
            refusal(one.owner, one.allowance, use, one.call) for one, use in zip(claims, uses, strict=True)
        ]
        return next((denial for denial in found if denial), UNCHECKED)

    async def _report_all(self) -> None:
        while not self._ending:
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await self._wake.wait()
                    await asyncio.sleep(COALESCE_S)
            self._wake.clear()
            await self._report()
            if not self._here:
                await asyncio.sleep(REPORT_S)

    async def _report(self) -> None:
        """Report what has changed, and now and then all calls. Never raises an error of the store."""
        now = time.monotonic()
        everything = not self._here or now - self._all_at >= RENEW_S
        try:
            async with asyncio.timeout(REPORT_S):
                if not self._here:
                    await self._store.begin([], "")  # whether it would count a call
                known = await self._send(everything)
        except Exception as error:
            self._lost(error)  # then the next report has all calls
            return
        self._all_at = now if everything else self._all_at
        if not known:  # Redis has lost what it knew
            self._limits.tally.report_anew()
            if not everything:
                self._all_at = now - RENEW_S
                self.wake()
        if not self._said:
            log.info("limits_store answers again: the limits hold for all servers")
        self._here = self._said = True

    async def _send(self, everything: bool) -> bool:
        """Send a report, and learn what others use. Return whether Redis knows of an earlier report."""
        tally = self._limits.tally
        day, calls, amounts = tally.day, self._limits.calls(everything), tally.report(everything)
        try:
            known, elsewhere = await self._store.report(calls, day, amounts, everything)
        except BaseException:
            tally.follow(amounts)
            raise
        tally.learn(day, elsewhere)
        return known

    async def _leave(self) -> None:
        """Report what was used, as a last report may have been cancelled. Calls count no more."""
        if self._here:
            try:
                async with asyncio.timeout(REPORT_S):
                    while self._limits.tally.unreported:
                        await self._send(everything=False)
                    await self._store.leave()
            except Exception as error:
                self._lost(error)

    def _lost(self, error: Exception) -> None:
        """Take that the store is away: until it is back, nothing waits for it."""
        if self._said:
            instead = "nothing with a limit begins" if self._closed else "each server applies its own limits"
            reason = str(error) or type(error).__name__
            log.error("limits_store does not answer, so %s: %s", instead, reason)
        self._here = self._said = False
