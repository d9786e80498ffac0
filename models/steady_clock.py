"""The time since the epoch, by a clock that nobody sets while the process runs."""

from __future__ import annotations

import time

_START = time.time() - time.monotonic()


def steady_time() -> float:
    """Return the seconds since the epoch: those at the start of the process, and the time that has passed.

    For whatever expires. An operator or a time server may set the wall clock by hours, forwards, which would
    end what is still valid, and backwards, which would prolong it.
    """
    return _START + time.monotonic()
