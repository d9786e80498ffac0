"""What the language models have cost today."""

from __future__ import annotations

from datetime import date
from weakref import WeakKeyDictionary

DAYS = 4
"""Days whose cost is known: the last ones on which anything was reported."""


class DaySpending:
    """The cost of a day, of all routers of a server.

    It counts from the start of this program, and begins again at midnight. A router's requests count from the
    time it reports them, which is when it chooses a model the next time. A clock that is set to another day
    and back finds the cost of the day as it was.
    """

    def __init__(self) -> None:
        self._costs: dict[date, float] = {}
        self._reported: WeakKeyDictionary[object, tuple[date, float]] = WeakKeyDictionary()

    def report(self, router: object, spent: float, today: date) -> float:
        """Return the cost of today, in the unit of the prices.

        spent: by all requests of this router since the start. What it has not reported by midnight counts for
        the day before.
        """
        self._costs.setdefault(today, 0.0)
        while len(self._costs) > DAYS:
            del self._costs[next(iter(self._costs))]
        day, before = self._reported.get(router, (today, 0.0))
        self._reported[router] = (today, spent)
        self._costs[today] += spent - before if day == today else 0.0
        return self._costs[today]
