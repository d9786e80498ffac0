"""Measures the level of a turn, and since when it is quiet."""

from __future__ import annotations

import numpy as np

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk

HOP_SAMPLES = RATE // 100
"""Samples in one step of the level: 10 ms."""
AUDIBLE = 10 ** (-50 / 20)
"""Amplitude above which a sample is audible: -50 dBFS, far above resampling noise and far below speech."""
LATE_SAMPLES = int(0.2 * RATE)
"""Longest lag of voice activity behind the level, in samples; a longer one means quiet speech at the end."""
QUIET_POWER = 10 ** (-25 / 10)
"""A hop below this share of the power of the turn's loudest hop is quiet."""


class Loudness:
    """The level of one turn, in hops of 10 ms.

    quiet_from: the sample since which every hop is quiet, None if the last hop is loud.
    """

    def __init__(self) -> None:
        self.quiet_from: int | None = None
        self._loudest = 0.0

    def ended_by(self, pause: int) -> bool:
        """Return whether the speech that ends at ``pause`` by voice activity ended before the quiet."""
        return self.quiet_from is not None and pause <= self.quiet_from + LATE_SAMPLES

    def quiet_before(self, pause: int) -> int:
        """Return the sample since which it is quiet: ``pause`` by voice activity, or sooner by the level."""
        return min(self.quiet_from or 0, pause) if self.ended_by(pause) else pause

    def feed(self, chunk: AudioChunk) -> None:
        """Add the next audio of the turn."""
        samples = chunk.samples()
        for first in range(0, len(samples), HOP_SAMPLES):
            power = float(np.mean(np.square(samples[first : first + HOP_SAMPLES])))
            self._loudest = max(self._loudest, power)
            if power > self._loudest * QUIET_POWER:
                self.quiet_from = None
            elif self.quiet_from is None:
                self.quiet_from = chunk.start + first
