"""Silence skipping: which windows of a calm line the VAD's network does not have to judge at once."""

from __future__ import annotations

from collections import deque

CALM_WINDOWS = 31
"""Consecutive quiet windows of 32 ms without a trace of speech before one is skipped: 1 s."""
SPEECH_TRACE = 0.05
"""Probability of speech from which a window has a trace of speech."""
POWER_RATIO = 1.5
"""A window above this multiple of the quietest calm window's power is judged: 1.8 dB."""
MAX_POWER = 512 * 10 ** (-60 / 10)
"""Most power (sum of 512 squared samples) of a calm window: -60 dBFS. On a noisier line all are judged."""
MAX_SKIPPED = 31
"""Most windows that are skipped in a row: 1 s, which the network judges in 2 ms."""


class SilenceSkipper:
    """Decides which windows of one session may be skipped, from their power and from earlier results.

    Skipped windows are judged later in one run. One by one they cost up to ten times as much, because the CPU
    caches are cold each time. Speech that is no louder than the noise of its line is found 1 s later.
    """

    def __init__(self) -> None:
        self._powers: deque[float] = deque(maxlen=CALM_WINDOWS)
        self._skipped = 0

    @property
    def required(self) -> int:
        """Number of next windows to judge without asking ``skips``; 1 if ``skips`` decides."""
        return max(1, CALM_WINDOWS - len(self._powers))

    def skips(self, power: float) -> bool:
        """Return whether the next window may be skipped. power: sum of its squared samples."""
        calm = len(self._powers) == CALM_WINDOWS and power <= POWER_RATIO * min(self._powers)
        self._skipped = self._skipped + 1 if calm and self._skipped < MAX_SKIPPED else 0
        return self._skipped > 0

    def add(self, power: float, probability: float) -> None:
        """Add the result of a window that was not skipped. power: sum of its squared samples."""
        if probability >= SPEECH_TRACE or power > MAX_POWER:
            self._powers.clear()
        else:
            self._powers.append(power)
