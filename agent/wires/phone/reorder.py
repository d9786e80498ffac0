"""Frames into the order of their numbers, for wires that do not keep it."""

from __future__ import annotations

WINDOW = 4
"""So many later frames may come before one that is missing is given up: 80 ms of audio."""
FAR = 100
"""A number so far from the expected one begins a new count."""


class Reorder:
    """A stream of numbered frames. What is missing is left out, what comes twice or too late is dropped."""

    def __init__(self) -> None:
        self._next: int | None = None
        self._early: dict[int, bytes] = {}

    def take(self, number: int, frame: bytes) -> list[bytes]:
        """Return the frames that are due now."""
        if self._next is None or abs(number - self._next) > FAR:
            self._next, self._early = number, {}
        if number < self._next:
            return []
        self._early[number] = frame
        due: list[bytes] = []
        while self._early and (self._next in self._early or len(self._early) > WINDOW):
            self._next = min(self._early)
            due.append(self._early.pop(self._next))
            self._next += 1
        return due
