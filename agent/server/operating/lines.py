"""The lines of a server: how many calls it takes at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection

from rejoinder.agent.wires.call import Call


class Lines:
    """The lines of a server. A call takes one before it begins, so two calls cannot take the last one.

    most: calls at a time. calls: those that have begun. make_way: ends a call whose client is gone; returns
    whether there was one.
    """

    def __init__(self, most: int, calls: Collection[Call], make_way: Callable[[], bool]) -> None:
        self._most = most
        self._calls = calls
        self._make_way = make_way
        self._beginning: set[object] = set()

    def take(self, connection: object) -> str:
        """Take a line for the call of a connection that has none yet, or return why there is none."""
        if connection in self._beginning:
            return ""
        if (busy := self.full()) and not self._make_way():
            return busy
        self._beginning.add(connection)
        return ""

    def full(self) -> str:
        """Return the refusal if all lines are busy, "" if one is free."""
        taken = len(self._calls) + len(self._beginning)
        return f"all {self._most} lines are busy" if taken >= self._most else ""

    def release(self, connection: object) -> None:
        """Give back a line: the call has begun, and counts by itself, or it does not begin."""
        self._beginning.discard(connection)
