"""The play-out position of a reply, from the marks that a carrier returns.

It is more reliable than an estimate by the clock, because the carrier returns a mark once it is played.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from rejoinder.pipeline import RATE

EVERY_SECONDS = 0.1
"""Least audio between two marks, in seconds. With slices of 40 ms and messages of 80 ms it is 160 ms."""
MOST_MARKS = 256
"""Most marks that have not come back: more than half a minute of audio."""


@dataclass(frozen=True, slots=True)
class _Mark:
    name: str
    turn: int
    seconds: float


class Marks:
    """The marks of one call. Times count samples received from the caller (16 kHz): they arrive in real time.

    answered: whether any mark has come back. If so, the carrier supports marks.
    """

    def __init__(self) -> None:
        self.answered = False
        self._out: deque[_Mark] = deque(maxlen=MOST_MARKS)
        self._last = _Mark("", 0, 0.0)
        self._at = 0

    @property
    def waiting(self) -> bool:
        """Whether any mark has not come back yet."""
        return bool(self._out)

    def place(self, turn: int, seconds: float) -> str:
        """Record a mark after ``seconds`` of a reply; return its name."""
        mark = _Mark(f"{turn}-{seconds * 1000:.0f}", turn, seconds)
        self._out.append(mark)
        return mark.name

    def returned(self, name: str, now: int) -> None:
        """Record that a mark came back, and all marks before it. Unknown and cleared marks are ignored."""
        if any(mark.name == name for mark in self._out):
            self.answered = True
            while (mark := self._out.popleft()).name != name:
                pass
            self._last, self._at = mark, now

    def clear(self) -> None:
        """Forget the marks that have not come back: their audio was dropped, not played."""
        self._out.clear()

    def played(self, turn: int, now: int) -> float:
        """Return the seconds of a reply that were played: up to its last mark, plus the time since then.

        The result is at most the position of the next mark that has not come back.
        """
        if self._last.turn != turn:
            return 0.0
        seconds = self._last.seconds + max(0, now - self._at) / RATE
        return min([seconds, *(mark.seconds for mark in self._out if mark.turn == turn)])
