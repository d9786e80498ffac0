"""Audio as it travels: mono 16-bit PCM with a rate and a place in the session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
"""Hertz at which the listening half of the pipeline works; wires resample to it at their edge."""

Samples = NDArray[np.float32]
"""Mono samples in [-1, 1]."""

Words = tuple[tuple[float, int], ...]
"""(seconds, characters) for one word after the other: when in a clause how much of its text is spoken."""


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """A piece of mono audio.

    pcm: little-endian signed 16-bit samples.
    rate: hertz.
    start: index of the first sample, counted from the start of the stream the chunk belongs to.
    words: of a voice: after so many seconds of its clause so many characters of the text are spoken, for all
        words of which that is known by now; empty where the voice does not know.
    """

    pcm: bytes
    rate: int
    start: int = 0
    words: Words = ()

    def __post_init__(self) -> None:
        if len(self.pcm) % 2:
            raise ValueError(f"16-bit audio needs an even number of bytes, not {len(self.pcm)}")
        if self.rate <= 0:
            raise ValueError(f"the rate must be positive, not {self.rate}")

    def __len__(self) -> int:
        """Count samples."""
        return len(self.pcm) // 2

    @property
    def end(self) -> int:
        """Index of the sample after the last one."""
        return self.start + len(self)

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return len(self) / self.rate

    def samples(self) -> Samples:
        """Return the audio as float samples in [-1, 1]."""
        return to_float(self.pcm)

    def int16(self) -> NDArray[np.int16]:
        """Return the audio as 16-bit samples."""
        return np.frombuffer(self.pcm, dtype="<i2")

    def slices(self, size: int) -> Iterator[AudioChunk]:
        """Yield the same audio in chunks of at most ``size`` samples."""
        if 0 < len(self) <= size:
            yield self
            return
        for first in range(0, len(self), size):
            yield AudioChunk(self.pcm[2 * first : 2 * (first + size)], self.rate, self.start + first)


def joined(chunks: Sequence[AudioChunk]) -> AudioChunk:
    """Return chunks that follow each other as one; there has to be one at least."""
    return AudioChunk(b"".join(chunk.pcm for chunk in chunks), chunks[0].rate, chunks[0].start)


def to_float(pcm: bytes) -> Samples:
    """Turn little-endian 16-bit PCM into float samples in [-1, 1]."""
    return np.frombuffer(pcm, dtype="<i2").astype(np.float32) / 32768.0


def to_pcm(samples: Samples) -> bytes:
    """Turn float samples into little-endian 16-bit PCM; what exceeds [-1, 1] is clipped."""
    clipped = np.minimum(np.maximum(samples, -1.0), 1.0)  # np.clip takes twice as long for a frame of 20 ms
    return (clipped * 32767.0).astype("<i2").tobytes()
