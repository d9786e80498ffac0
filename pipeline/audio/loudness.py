"""How loud a turn is, and since when its speaker has been quiet."""

from __future__ import annotations

import numpy as np

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk

HOP = RATE // 100
LATE_SAMPLES = int(0.2 * RATE)
"""Voice activity lags behind the level; where it lags by more than this, the turn ended in quiet speech."""
QUIET = 10 ** (-25 / 10)
"""Below this share of the power of the turn's loudest hop nobody speaks: a gap between words, or the end."""


class Loudness:
    """The level of one turn, in hops of 10 ms.

    quiet_from: the sample since which every hop was quiet, None while somebody is loud.
    """

    def __init__(self) -> None:
        self.quiet_from: int | None = None
        self._loudest = 0.0

    def ended_by(self, pause: int) -> bool:
        """Tell whether all that was said before ``pause``, by voice activity, was said before the quiet."""
        return self.quiet_from is not None and pause <= self.quiet_from + LATE_SAMPLES

    def quiet_before(self, pause: int) -> int:
        """Return the sample since which it is quiet where voice activity says ``pause``: that, or sooner."""
        return min(self.quiet_from or 0, pause) if self.ended_by(pause) else pause

    def feed(self, chunk: AudioChunk) -> None:
        """Take the next audio of the turn."""
        samples = chunk.samples()
        for first in range(0, len(samples), HOP):
            power = float(np.mean(np.square(samples[first : first + HOP])))
            self._loudest = max(self._loudest, power)
            if power > self._loudest * QUIET:
                self.quiet_from = None
            elif self.quiet_from is None:
                self.quiet_from = chunk.start + first
