"""How the writes of a journal go: what the log and the metrics say, and when a failed one is tried again."""

from __future__ import annotations

import logging

from rejoinder.agent.metrics.measures import Measurement
from rejoinder.agent.metrics.meters import Meters

log = logging.getLogger(__name__)

FIRST_REWRITE_S = 0.2
"""Wait after the first failed write, in seconds. It doubles with each further one."""
LONGEST_REWRITE_S = 5.0
"""Longest wait after a failed write, in seconds."""


def retry_after(failures: int) -> float:
    """Return the seconds until the next try. failures: the writes in a row that have failed, at least 1."""
    return float(min(LONGEST_REWRITE_S, FIRST_REWRITE_S * 2 ** min(failures - 1, 10)))


class Writes:
    """Counts writes, and logs when they begin and stop to fail.

    failures: writes in a row that have failed. slow: whether the last one took longer than calls wait for it.
    """

    def __init__(self, meters: Meters) -> None:
        self.failures = 0
        self.slow = False
        self._said_slow = False
        self._meters = meters

    def succeeded(self, seconds: float, limit: float) -> None:
        """Take a write. limit: how long one may take that calls wait for, in seconds."""
        if self.failures:
            log.info("conversations are kept again")
        elif self._said_slow and seconds <= limit:
            log.info("the store of conversations is fast enough again")
        self._said_slow = self._said_slow and seconds > limit
        self.failures, self.slow = 0, seconds > limit
        values = [Measurement("journal_writes", labels=("written",))]
        self._meters.record([*values, Measurement("journal_write_seconds", seconds)])

    def failed(self, reason: str) -> None:
        """Take a write that has failed."""
        if not self.failures:
            log.error("conversations are not kept: %s", reason)
        self.failures += 1
        self._meters.record([Measurement("journal_writes", labels=("failed",))])

    def is_late(self, limit: float) -> None:
        """Take a write for which a call has waited for too long, and which goes on."""
        if not (self._said_slow or self.failures):
            self._said_slow = True
            log.warning("the store of conversations takes longer than %g s: no call waits for it", limit)
        self.slow = True

    def keeps(self, conversations: int) -> None:
        """Take the number of conversations that are kept."""
        self._meters.record([Measurement("journal_conversations", conversations)])
