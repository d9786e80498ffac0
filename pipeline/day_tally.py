"""Amounts that are counted by the day: tokens, money and audio, of one server and of all servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

MOST_STRANGERS = 100_000
"""Names of a day beyond which no further address is counted: about 20 MB."""


class DayTally:
    """The amounts of one day by name. today: returns the date; each new one begins again with nothing.

    Several servers may share their amounts: each reports its own, and learns the sum of the others'.
    """

    def __init__(self, today: Callable[[], object] = lambda: None) -> None:
        self._today = today
        self._date = today()
        self._here: dict[str, float] = {}
        self._elsewhere: dict[str, float] = {}
        self._changed: set[str] = set()

    @property
    def day(self) -> str:
        """The date, as text."""
        self._begin_day()
        return str(self._date)

    def add(self, name: str, amount: float, most: int = 0) -> None:
        """Count an amount that was used here.

        most: names of a day beyond which a new one is not counted, 0 for no limit. Give it where strangers
        make names.
        """
        self._begin_day()
        if most and len(self._here) >= most and name not in self._here:
            return
        self._here[name] = self._here.get(name, 0.0) + amount
        self._changed.add(name)

    def follow(self, names: Iterable[str], most: int = 0) -> None:
        """Ask for what others use under these names, from the next report on. most: as for ``add``."""
        for name in names:
            self.add(name, 0.0, most)

    def total(self, name: str) -> float:
        """Return what was used today, here and elsewhere."""
        self._begin_day()
        return self._here.get(name, 0.0) + self._elsewhere.get(name, 0.0)

    def report(self, everything: bool = False) -> dict[str, float]:
        """Return what was used here under the names that have changed since the last report, or under all."""
        self._begin_day()
        names = list(self._here) if everything else list(self._changed)
        self._changed.clear()
        return {name: self._here[name] for name in names}

    def learn(self, day: str, elsewhere: dict[str, float]) -> None:
        """Take the sums of the other servers, by name. They count if it is still the same day."""
        if day == self.day:
            self._elsewhere.update(elsewhere)

    def _begin_day(self) -> None:
        if (now := self._today()) != self._date:
            self._date = now
            for amounts in (self._here, self._elsewhere, self._changed):
                amounts.clear()
