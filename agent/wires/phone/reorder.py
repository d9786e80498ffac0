"""Sorts numbered frames, for wires that do not keep the order."""

from __future__ import annotations

REORDER_WINDOW = 4
"""Later frames that may arrive before a missing frame is given up: 80 ms of audio."""
FAR = 100
"""A number this far from the expected one begins a new count."""


class Reorder:
    """A stream of numbered frames. Missing frames are skipped; duplicate and late frames are dropped."""

    def __init__(self) -> None:
        self._next: int | None = None
        self._early: dict[int, bytes] = {}

    def take(self, number: int, frame: bytes) -> list[bytes]:
        """Take one frame; return the frames that are now in order."""
        if self._next is None or abs(number - self._next) > FAR:
            self._next, self._early = number, {}
        if number < self._next:
            return []
        self._early[number] = frame
        due: list[bytes] = []
        while self._early and (self._next in self._early or len(self._early) > REORDER_WINDOW):
            self._next = min(self._early)
            due.append(self._early.pop(self._next))
            self._next += 1
        return due
