"""Finds the first voiced sample, by a rule that is independent of any VAD."""

from __future__ import annotations

import numpy as np
import soxr

from rejoinder.agent.bench.cases.recordings import HOP_SECONDS, loud_hops
from rejoinder.pipeline.audio.chunk import Samples

LOW_RATE = 2_000
"""Hertz. The first harmonics of a voice are below half of it, most of the noise of "s" and "t" is above."""
PITCH_RANGE = (70, 400)
"""Hertz: the lowest and the highest voice."""
PITCH_FRAME_SECONDS = 0.03
"""Length of a frame."""
PERIODIC = 0.6
"""Correlation of a frame with itself a period later above which it is voiced; noise has 0.2 to 0.5."""
VOICED_HOPS = 3
"""Consecutive periodic hops that make a voiced sound."""


def first_voiced(audio: Samples, rate: int) -> int:
    """Return the index of the first voiced sample, 0 if none is voiced.

    It is in the first of three hops of 10 ms that are periodic, and loud by the rule of ``speech_end``. A
    breath, a click and the "t" of "two" come before it. Whispered speech has no voiced sample.
    """
    voiced = _periodic(soxr.resample(audio, rate, LOW_RATE)) >= PERIODIC
    loud = loud_hops(audio, rate)
    both = voiced[: len(loud)] & loud[: len(voiced)]
    if len(both) < VOICED_HOPS:
        return 0
    runs = np.lib.stride_tricks.sliding_window_view(both, VOICED_HOPS).all(axis=1)
    return int(np.argmax(runs)) * int(HOP_SECONDS * rate)


def _periodic(low: Samples) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return for each hop how much the frame around its middle is like what follows one period later."""
    hop, frame = int(HOP_SECONDS * LOW_RATE), int(PITCH_FRAME_SECONDS * LOW_RATE)
    lowest, highest = PITCH_RANGE
    lags = np.arange(LOW_RATE // highest, LOW_RATE // lowest + 1)
    length = frame + int(lags[-1])
    padded = np.concatenate((np.zeros(length // 2), low, np.zeros(length)))
    found = []
    for first in range(hop // 2, len(low), hop):
        piece = padded[first : first + length] - padded[first : first + length].mean()
        shifted = np.lib.stride_tricks.sliding_window_view(piece, frame)[lags]
        power = np.sqrt((piece[:frame] @ piece[:frame]) * (shifted**2).sum(axis=1)) + 1e-12
        found.append(float((shifted @ piece[:frame] / power).max()))
    return np.array(found)
