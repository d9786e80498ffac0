"""Amounts that are counted by the day: tokens, money and audio, of one server and of all servers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice

log = logging.getLogger(__name__)

MOST_NAMES = 100_000
"""Names of a day beyond which no new one that strangers make is counted: about 20 MB."""
MOST_REPORTED = 200
"""Names in one report to the other servers: with Redis, about 20 ms of the event loop."""


class DayTally:
    """The amounts of one day by name. today: returns the date; each new one begins again with nothing.

    Several servers may share their amounts: each reports its own, and learns the sum of the others'.
    """

    def __init__(self, today: Callable[[], object] = lambda: None) -> None:
        self._today = today
        self._date = today()
        self._here: dict[str, float] = {}
        self._elsewhere: dict[str, float] = {}
        self._changed: dict[str, None] = {}
        self._full = False

    @property
    def day(self) -> str:
        """The date, as text."""
        self._begin_day()
        return str(self._date)

    def add(self, name: str, amount: float, strange: bool = False) -> None:
        """Count an amount that was used here.

        strange: whether strangers make the name, such as by an address. Beyond ``MOST_NAMES``, a new such
        name is not counted.
        """
        self._begin_day()
        if strange and len(self._here) >= MOST_NAMES and name not in self._here:
            self._say_full()
            return
        self._here[name] = self._here.get(name, 0.0) + amount
        self._changed[name] = None

    def follow(self, names: Iterable[str], strange: bool = False) -> None:
        """Ask for what others use under these names, from the next report on. strange: as for ``add``."""
        for name in names:
            self.add(name, 0.0, strange)

    def total(self, name: str) -> float:
        """Return what was used today, here and elsewhere."""
        self._begin_day()
        return self._here.get(name, 0.0) + self._elsewhere.get(name, 0.0)

    def report(self, everything: bool = False) -> dict[str, float]:
        """Return what was used here under names that have changed since their last report, a bounded number.

        everything: fill the report up to ``MOST_REPORTED`` with other names, those first that were reported
        longest ago. ``follow`` the names of a report that does not arrive.
        """
        self._begin_day()
        names = list(islice(self._changed, MOST_REPORTED))
        if everything:
            names = list(islice(dict.fromkeys([*names, *islice(self._here, MOST_REPORTED)]), MOST_REPORTED))
        for name in names:
            self._changed.pop(name, None)
            self._here[name] = self._here.pop(name)  # the last to be reported again
        return {name: self._here[name] for name in names}

    def report_anew(self) -> None:
        """Report all names again, changed or not: the other servers may have lost them."""
        self._begin_day()
        self._changed |= dict.fromkeys(self._here)

    @property
    def unreported(self) -> bool:
        """Whether there are names that have changed since their last report."""
        return bool(self._changed)

    def learn(self, day: str, elsewhere: dict[str, float]) -> None:
        """Take the sums of the other servers, by name. They count if it is still the same day."""
        if day == self.day:
            self._elsewhere.update(elsewhere)

    def _begin_day(self) -> None:
        if (now := self._today()) != self._date:
            self._date = now
            self._full = False
            for names in (self._here, self._elsewhere, self._changed):
                names.clear()

    def _say_full(self) -> None:
        if not self._full:
            log.warning("%d names are counted today: new addresses have no limits per day", len(self._here))
        self._full = True
