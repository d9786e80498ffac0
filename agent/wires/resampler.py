"""Resampling of streamed audio."""

from __future__ import annotations

import numpy as np
import soxr


class Resampler:
    """A stream through soxr's variable-rate filter, which delays by 10 ms instead of 37 at the same quality.

    rate, wanted: of the input and of the output, in hertz.
    """

    def __init__(self, rate: float, wanted: float) -> None:
        self._stream = soxr.ResampleStream(rate, wanted, 1, dtype="int16", vr=True)

    def feed(self, pcm: bytes, last: bool = False) -> bytes:
        """Add 16-bit audio; return what is ready, and with ``last`` also what the filter still holds."""
        samples = np.frombuffer(pcm, "<i2")
        return bytes(self._stream.resample_chunk(samples, last=last).astype("<i2").tobytes())
