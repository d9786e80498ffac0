"""Limits second requests to a share of all requests: they cost money, and load models that are slow already.

The rule is that of Finagle's retry budget: each request puts a part of a token into a bucket, and each second
request takes one out (https://twitter.github.io/finagle/guide/Clients.html#retries).
"""

from __future__ import annotations

HEDGE_SHARE = 0.2
"""Default share of the answers for which two models are asked at a time."""
MOST_SAVED = 3.0
"""Most second requests that may follow each other. After as many late answers the breaker opens."""

ROUNDING = 1e-9
"""Parts of a token do not add up exactly."""


class HedgeBudget:
    """Decides whether a second request is sent. share: of the requests that may get one; 0 for none."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._saved = MOST_SAVED if share else 0.0

    def asked(self) -> None:
        """Record the first request for an answer."""
        self._saved = min(self._saved + self._share, MOST_SAVED)

    def spend(self) -> bool:
        """Return whether a second request is within the budget, and take it out of that."""
        if self._saved < 1.0 - ROUNDING:
            return False
        self._saved -= 1.0
        return True
