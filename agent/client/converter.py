"""Resamples the agent's audio to the rate of a sound device."""

from __future__ import annotations

from typing import Any

import numpy as np

from rejoinder.pipeline import AudioChunk, to_float, to_pcm


class Converter:
    """Resamples streams of chunks to one rate, and keeps the filter's state between chunks."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._from = 0
        self._stream: Any = None

    def convert(self, chunk: AudioChunk) -> bytes:
        """Return the resampled 16-bit audio, up to 40 ms late. A chunk with start 0 begins a new stream."""
        import soxr

        if chunk.rate == self._rate:
            return chunk.pcm
        if chunk.start == 0 or chunk.rate != self._from:
            self._stream = soxr.ResampleStream(chunk.rate, self._rate, 1, dtype="float32", quality="HQ")
            self._from = chunk.rate
        resampled = self._stream.resample_chunk(to_float(chunk.pcm))
        return to_pcm(np.asarray(resampled, np.float32))

    def finish(self) -> bytes:
        """End the stream, and return the 16-bit audio that the filter still holds."""
        stream, self._stream, self._from = self._stream, None, 0
        if stream is None:
            return b""
        return to_pcm(np.asarray(stream.resample_chunk(np.zeros(0, np.float32), last=True), np.float32))
