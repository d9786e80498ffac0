"""Audio at the rate of the listening half, at once: a windowed sinc that holds back 1 ms.

soxr, through which all goes that people hear, holds back 10 ms of a stream (docs/lab/latency.md), and whoever
has fallen silent waits for them. Models that listen do not hear what this lets through in exchange.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples

TAPS = 32
"""Length of the filter in samples of the source: what it lets through wrongly is 50 dB below speech."""
PASSED = 0.92
"""Share of the lower rate's band that is kept."""
FEW = 8
"""So many phases are filtered one by one: 24 kHz has two of them, 22,050 Hz has 320."""


class ToSession:
    """Turns a stream of chunks at ``rate`` hertz into samples at 16 kHz, 1 ms late."""

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

    def feed(self, chunk: AudioChunk) -> Samples:
        """Return the samples that can be told by now."""
        audio = np.concatenate((self._rest, chunk.samples()))
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
        """Do the same without copying anything, half as long as there are few phases."""
        size = audio.itemsize
        for place in range(min(len(out), self._phases)):
            first, phase = divmod(self._at + self._step * place, self._phases)
            filtered = out[place :: self._phases]
            shape, strides = (len(filtered), TAPS), (size * self._step, size)
            windows = np.ndarray(shape, np.float32, audio, size * first, strides)
            np.vecdot(windows, self._taps[phase], out=filtered)
