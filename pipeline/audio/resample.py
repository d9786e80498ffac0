"""Resamples audio to the rate of the listening stages with a delay of 1 ms, by a windowed sinc.

soxr, which resamples the audio that people hear, delays a stream by 10 ms (docs/lab/latency-listening.md),
and each reply would wait for them. The lower quality of this filter does not affect the listening models.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from rejoinder.pipeline.audio.chunk import RATE, Samples, to_float

TAPS = 32
"""Length of the filter in source samples: aliases are 50 dB below speech."""
PASSED = 0.92
"""Share of the lower rate's band that the filter passes."""
FEW = 8
"""Most phases that are filtered one by one: 24 kHz has 2 phases, 22,050 Hz has 320."""


class ToSession:
    """Resamples a stream at ``rate`` hertz to 16 kHz with a delay of 1 ms."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        common = gcd(rate, RATE)
        self._step, self._phases = rate // common, RATE // common
        offsets = np.arange(TAPS)[None] - TAPS // 2 + 1 - np.arange(self._phases)[:, None] / self._phases
        cut = PASSED * min(1.0, RATE / rate)
        window = np.cos(np.pi * offsets / (TAPS + 2)) ** 2
        self._taps: Samples = (cut * np.sinc(cut * offsets) * window).astype(np.float32)
        self._rest: Samples = np.zeros(TAPS // 2 - 1, np.float32)
        self._at = 0  # in steps of a phase, from the first sample of the rest

    def feed(self, pcm: bytes) -> Samples:
        """Add 16-bit samples; return the samples that are complete, float32, shape (samples,)."""
        audio = np.concatenate((self._rest, to_float(pcm)))
        reached = (len(audio) - TAPS + 1) * self._phases  # behind the places at which all taps have a sample
        out = np.empty(max(0, -(-(reached - self._at) // self._step)), np.float32)
        if self._phases <= FEW:
            self._filter_by_phase(audio, out)
        else:
            self._filter(audio, out)
        self._at += len(out) * self._step
        done = min(self._at // self._phases, len(audio))
        self._rest, self._at = audio[done:], self._at - done * self._phases
        return out

    def _filter(self, audio: Samples, out: Samples) -> None:
        first, phase = np.divmod(self._at + self._step * np.arange(len(out)), self._phases)
        windows = np.ndarray((max(0, len(audio) - TAPS + 1), TAPS), np.float32, audio, 0, 2 * audio.strides)
        np.vecdot(windows[first], self._taps[phase], out=out)

    def _filter_by_phase(self, audio: Samples, out: Samples) -> None:
        """Filter without copies, which takes half the time if there are few phases."""
        size = audio.itemsize
        for place in range(min(len(out), self._phases)):
            first, phase = divmod(self._at + self._step * place, self._phases)
            filtered = out[place :: self._phases]
            shape, strides = (len(filtered), TAPS), (size * self._step, size)
            windows = np.ndarray(shape, np.float32, audio, size * first, strides)
            np.vecdot(windows, self._taps[phase], out=filtered)
