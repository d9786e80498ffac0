"""Keeps the use of this server and that of all servers together, also while their store is away."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.faults import LIMITS_FAULT, count_fault
from rejoinder.agent.metrics.measures import Measurement
from rejoinder.agent.metrics.meters import Meters
from rejoinder.agent.server.limiting.allowance import CallRefused, Use
from rejoinder.agent.server.limiting.redis_counters import MAX_REPORTS, Beginning, RedisCounters
from rejoinder.agent.server.limiting.shared_use import SharedUse
from rejoinder.pipeline.errors import ModelError

log = logging.getLogger(__name__)

LIMITS_WAIT_S = 0.5
"""Longest wait of a call or a request for the store, in seconds. While the store is away, none waits."""
REPORT_S = 1.0
"""Interval between two reports of audio and tokens, in seconds. A key may use that much beyond its limit."""
RENEW_S = 3.0
"""Interval between two reports of calls that go on, in seconds: each lease has three chances."""
STORE_AWAY_SECONDS = 5
"""Value of ``Retry-After`` while the store is away, in seconds."""
UNCHECKED = CallRefused(
    "the limits cannot be checked now: try again in a few seconds", STORE_AWAY_SECONDS, status=503
)
"""The refusal while the store is away, where no call is to begin without it."""


class SharedLimits:
    """The limits that all servers with the same store apply together.

    keys, addresses: what both kinds of owners use at this server. closed: whether nothing with a limit begins
    while the store is away; otherwise this server's own use decides. came: called with False when the store
    is away, and with True when it answers.
    """

    def __init__(
        self, counters: RedisCounters, closed: bool, came: Callable[[bool], None] = lambda here: None
    ) -> None:
        self._wake = asyncio.Event()
        self.keys = SharedUse("key", self._wake.set)
        self.addresses = SharedUse("address", self._wake.set)
        self._counters = counters
        self._came = came
        self._closed = closed
        self._here = False
        self._ending = False
        self._renewed_at = 0.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Report for the length of the block. At its end, report what is left and close the connections.

        Cancelling may lose the last report.
        """
        if error := await self._look():
            self._say_away(error)
        reporting = asyncio.create_task(self._report_all(), name="limits")
        try:
            yield
        finally:
            self._ending = True
            self._wake.set()
            await asyncio.wait([reporting], timeout=LIMITS_WAIT_S)
            reporting.cancel()  # redis-py 8.1 swallows some, hence the flag
            await asyncio.wait([reporting])
            if self._here:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LIMITS_WAIT_S):
                        await self._report()
            await self._counters.aclose()

    async def begin(self, owners: Sequence[Beginning]) -> list[Use] | CallRefused | None:
        """Count a call or request that is within the limits of all its owners; return the use of each.

        ``refused_use`` says by it whether the call was counted. Returns a refusal where the store is away and
        nothing may begin without it, and None where this server's own use decides. It waits at most
        ``LIMITS_WAIT_S``. Cancelling counts nothing.
        """
        if not self._here:
            return UNCHECKED if self._closed else None
        task = asyncio.current_task()
        cancelled = task.cancelling() if task else 0
        failure: Exception | None = None
        try:
            async with asyncio.timeout(LIMITS_WAIT_S):
                uses = await self._counters.begin(owners)
        except asyncio.CancelledError:
            self.take_back(owners)
            raise
        except Exception as error:
            uses, failure = None, error
        if task and task.cancelling() > cancelled:  # redis-py 8.1 swallows some
            self.take_back(owners)
            raise asyncio.CancelledError
        if failure:
            self._lost(failure)
        if uses is None:
            return UNCHECKED if self._closed else None
        now = time.monotonic()
        for one, use in zip(owners, uses, strict=True):
            if use.audio or use.tokens:
                self._of(one.kind).learn(one.owner, use, now)
        return uses

    def take_back(self, owners: Sequence[Beginning]) -> None:
        """Stop counting calls that were counted, but do not begin."""
        for one in owners:
            if one.call:
                self._of(one.kind).release(one.owner, one.name)

    def _of(self, kind: str) -> SharedUse:
        return self.keys if kind == self.keys.kind else self.addresses

    async def _report_all(self) -> None:
        while not self._ending:
            if not self._here:
                await asyncio.sleep(REPORT_S)
                if await self._look():
                    self._forget_ended()
                else:
                    log.info("limits_store answers again: the limits hold for all servers")
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await self._wake.wait()
            self._wake.clear()
            if error := await self._report():
                self._lost(error)

    async def _look(self) -> Exception | None:
        """Find out whether the store answers. If so, tell it all before the next call waits for it.

        Return why it does not answer.
        """
        try:
            await self._counters.probe()
        except Exception as error:
            return error
        self._renewed_at = -RENEW_S
        if failure := await self._report():
            return failure
        self._here = True
        self._came(True)
        return None

    async def _report(self) -> Exception | None:
        """Report what has changed, and each ``RENEW_S`` all calls. Return why the store has not taken it."""
        now = time.monotonic()
        if everything := now - self._renewed_at >= RENEW_S:
            self._renewed_at = now
        try:
            for use in (self.keys, self.addresses):
                reports = use.reports(everything)
                for at in range(0, len(reports), MAX_REPORTS):
                    some = reports[at : at + MAX_REPORTS]
                    found = await self._counters.report(use.kind, some)
                    for report, one in zip(some, found, strict=True):
                        use.told(report, one, time.monotonic())
                use.forget(now)
        except Exception as error:
            return error
        return None

    def _lost(self, error: Exception) -> None:
        """Take that the store is away: until it is back, nothing waits for it."""
        if self._here:
            self._here = False
            self._say_away(error)
        self._forget_ended()

    def _say_away(self, error: Exception) -> None:
        instead = "no call with a limit begins" if self._closed else "each server applies its own limits"
        log.error("limits_store does not answer, so %s: %s", instead, str(error) or type(error).__name__)
        count_fault(LIMITS_FAULT)
        self._came(False)

    def _forget_ended(self) -> None:
        for use in (self.keys, self.addresses):
            use.lost()
            use.forget(time.monotonic())


def open_shared_limits(settings: Settings, meters: Meters) -> SharedLimits | None:
    """Return the limits of all servers, None without a store. Raises ConfigError for a wrong setting."""
    if not (url := settings.limits_store.get_secret_value()):
        return None
    without = settings.limits_without_store
    try:
        counters = RedisCounters(url)
    except ModelError as error:
        raise ConfigError(str(error)) from error
    return SharedLimits(counters, without == "closed", partial(_measure, meters, without))


def _measure(meters: Meters, without: str, here: bool) -> None:
    meters.record([Measurement("limits_store_up", float(here), (without,))])
