"""What each owner has used in the last 24 hours, counted by the hour."""

from __future__ import annotations

import math
from collections import deque

HOUR_SECONDS = 3600.0
"""The step in which use is counted, in seconds."""
HOURS = 24
"""Hours over which use is counted."""


class DailyUse:
    """Sums by owner. Times are arguments, in seconds. Memory: one number for each hour of an owner's use."""

    def __init__(self) -> None:
        self._hours: dict[str, deque[list[float]]] = {}

    def used(self, owner: str, now: float) -> float:
        """Return what an owner has used in the last 24 hours."""
        hours = self._hours.get(owner, deque[list[float]]())
        while hours and hours[0][0] <= now // HOUR_SECONDS - HOURS:
            hours.popleft()
        return sum(each for _, each in hours)

    def add(self, owner: str, amount: float, now: float) -> None:
        """Count what an owner uses now."""
        hours, hour = self._hours.setdefault(owner, deque()), now // HOUR_SECONDS
        if not hours or hours[-1][0] != hour:
            hours.append([hour, 0.0])
        hours[-1][1] += amount

    def again(self, owner: str, now: float) -> int:
        """Return the seconds until the oldest hour of an owner does not count any more."""
        hours = self._hours.get(owner)
        left = (hours[0][0] + HOURS) * HOUR_SECONDS - now if hours else HOUR_SECONDS
        return max(1, math.ceil(left))
