"""What the language models have cost today."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date


class DaySpending:
    """The cost of a day, in the unit of the prices, of all language models of a server.

    It counts from the start of this program, and begins again at local midnight.
    """

    def __init__(self, today: Callable[[], date] = date.today) -> None:
        self._today = today
        self._day = today()
        self._cost = 0.0

    @property
    def cost(self) -> float:
        """The cost of today."""
        if (today := self._today()) != self._day:
            self._day, self._cost = today, 0.0
        return self._cost

    def add(self, cost: float) -> None:
        """Add the cost of a request that has ended."""
        self._cost = self.cost + cost
