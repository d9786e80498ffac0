"""Decides whether a language model is asked at all: a circuit breaker over its last requests.

A closed breaker lets requests through. Too many failures or slow answers open it. While it is open, probes in
the background find out whether the model answers again. Only a probe closes it, so no caller waits for the
test (Nygard, Release It!, 2nd edition, chapter 5).

Libraries were looked at in November 2026. aiobreaker and purgatory guard one awaited call or one block, and
count consecutive failures only: neither knows an error rate, a slow call, or a stream that fails after its
first item, and both test a half-open circuit with the next caller's request. stamina only retries. So this
small table is ours.
"""

from __future__ import annotations

from collections import deque

BREAKER_CALLS = 10
"""Most requests that count."""
BREAKER_SECONDS = 60.0
"""Ignore requests older than this, in seconds."""
LEAST_BAD = 3
"""Fewest bad requests that open the breaker: one lost connection says little."""
BAD_SHARE = 0.5
"""Share of the counted requests that have to be bad to open the breaker."""
FIRST_PROBE_SECONDS = 1.0
"""Seconds from the opening to the first probe. Each failed probe doubles the wait."""
LONGEST_PROBE_SECONDS = 30.0
"""Longest wait between two probes, in seconds."""


class Breaker:
    """The circuit breaker of one model. Times are ``loop.time()``, in seconds.

        from    event                                            to
        ------  -----------------------------------------------  ------
        closed  ``LEAST_BAD`` bad of the last requests, and at
                least ``BAD_SHARE`` of them                      open
        open    a probe succeeds                                 closed
        open    a probe fails                                    open, with twice the wait

    A cancelled request counts neither as good nor as bad: the caller spoke, or a guess was dropped.
    """

    def __init__(self) -> None:
        self._outcomes: deque[tuple[float, bool]] = deque(maxlen=BREAKER_CALLS)
        self._wait = 0.0

    @property
    def closed(self) -> bool:
        """Whether requests go to the model."""
        return not self._wait

    @property
    def probe_wait(self) -> float:
        """Seconds until the next probe, 0 while the breaker is closed."""
        return self._wait

    def succeeded(self, now: float) -> None:
        """Record a request that was answered in time."""
        self._outcomes.append((now, True))

    def failed(self, now: float) -> bool:
        """Record a request that failed or was slow; return whether it opens the breaker."""
        self._outcomes.append((now, False))
        recent = [good for at, good in self._outcomes if at > now - BREAKER_SECONDS]
        bad = recent.count(False)
        if not self.closed or bad < LEAST_BAD or bad < BAD_SHARE * len(recent):
            return False
        self.open()
        return True

    def open(self) -> None:
        """Open the breaker: the model is known not to answer."""
        self._wait = FIRST_PROBE_SECONDS

    def probed(self, succeeded: bool) -> None:
        """Record the end of a probe: close the breaker, or double the wait."""
        if succeeded:
            self._outcomes.clear()
            self._wait = 0.0
        else:
            self._wait = min(2 * self._wait, LONGEST_PROBE_SECONDS)
