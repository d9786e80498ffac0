"""Measures the power of the windows that voice activity detection judges."""

from __future__ import annotations

import numpy as np

from rejoinder.pipeline.audio.chunk import AudioChunk, Samples


class WindowPower:
    """The power of consecutive windows of one session's audio. It keeps the audio of an unfinished window."""

    def __init__(self) -> None:
        self._start = 0
        self._audio: Samples = np.zeros(0, np.float32)

    def feed(self, chunk: AudioChunk) -> None:
        """Add the next audio."""
        self._audio = np.concatenate((self._audio, chunk.samples()))

    def until(self, end: int) -> float:
        """Return the mean square of the samples up to index ``end``, and drop them; 0.0 if there are none."""
        window = self._audio[: max(0, end - self._start)]
        self._audio, self._start = self._audio[len(window) :], self._start + len(window)
        return float(np.dot(window, window)) / len(window) if len(window) else 0.0
