"""How much of a reply has been played, by the marks that a carrier returns: the truest word there is."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from rejoinder.pipeline import RATE

EVERY_SECONDS = 0.1
"""Audio between two marks, at least; with slices of 40 ms and messages of 80 ms it is 160 ms."""
MOST = 256
"""Marks that may be out: more than half a minute of audio."""


@dataclass(frozen=True, slots=True)
class _Mark:
    name: str
    turn: int
    seconds: float


class Marks:
    """The marks of one call. Times are samples received from the caller (16 kHz): they come in real time.

    answered: whether any mark has come back, so that the others can be relied on.
    """

    def __init__(self) -> None:
        self.answered = False
        self._out: deque[_Mark] = deque(maxlen=MOST)
        self._last = _Mark("", 0, 0.0)
        self._at = 0

    @property
    def waiting(self) -> bool:
        """Tell whether a mark is out."""
        return bool(self._out)

    def place(self, turn: int, seconds: float) -> str:
        """Note a mark behind ``seconds`` of a reply; return its name."""
        mark = _Mark(f"{turn}-{seconds * 1000:.0f}", turn, seconds)
        self._out.append(mark)
        return mark.name

    def returned(self, name: str, now: int) -> None:
        """Take a mark back, and with it those before; one that is not out, or was cleared, says nothing."""
        if any(mark.name == name for mark in self._out):
            self.answered = True
            while (mark := self._out.popleft()).name != name:
                pass
            self._last, self._at = mark, now

    def clear(self) -> None:
        """Forget the marks that are out: those that come back from now on were dropped, not played."""
        self._out.clear()

    def played(self, turn: int, now: int) -> float:
        """Return the seconds of a reply that have been played: up to its last mark, and on since then.

        It cannot have gone on beyond a mark that is out.
        """
        if self._last.turn != turn:
            return 0.0
        seconds = self._last.seconds + max(0, now - self._at) / RATE
        return min([seconds, *(mark.seconds for mark in self._out if mark.turn == turn)])
