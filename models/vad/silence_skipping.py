"""When a line is so calm that its next window need not be judged by a network at once."""

from __future__ import annotations

from collections import deque

REST = 31
"""Windows of 32 ms without a trace of speech before one is skipped: a second."""
TRACE = 0.05
"""A probability of speech from which on there is a trace of it."""
LOUDER = 1.5
"""So many times the power of the quietest of them, and a window is judged: 1.8 dB."""
QUIET = 512 * 10 ** (-60 / 10)
"""Power of a window on a quiet line, at most: -60 dBFS. On a noisier one all are judged."""
LONGEST = 31
"""Windows that are skipped in a row, at most: a second of them is judged in 2 ms."""


class SilenceSkipper:
    """Decides which windows of one session may be skipped, by their power and what was found in others.

    Skipped ones are judged later, together: one by one they cost up to ten times as much, because caches are
    cold each time. Speech that is no louder than the noise on its line is found a second later.
    """

    def __init__(self) -> None:
        self._powers: deque[float] = deque(maxlen=REST)
        self._skipped = 0

    @property
    def certain(self) -> int:
        """Return how many windows are to be judged next, whatever their power: one if that decides."""
        return max(1, REST - len(self._powers))

    def skips(self, power: float) -> bool:
        """Tell whether the next window may be skipped."""
        calm = len(self._powers) == REST and power <= LOUDER * min(self._powers)
        self._skipped = self._skipped + 1 if calm and self._skipped < LONGEST else 0
        return self._skipped > 0

    def judged(self, power: float, probability: float) -> None:
        """Take what was found in a window that was not skipped."""
        if probability >= TRACE or power > QUIET:
            self._powers.clear()
        else:
            self._powers.append(power)
