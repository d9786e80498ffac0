"""Audio chunks: mono 16-bit PCM with a sample rate and a position in their stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
"""Sample rate of the listening stages in hertz; wires resample to it."""

Samples = NDArray[np.float32]
"""Mono samples in [-1, 1], shape (samples,), float32."""

Words = tuple[tuple[float, int], ...]
"""The ends of words in a clause: (seconds from the clause's start, characters of its text spoken by then)."""


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """A piece of mono audio.

    pcm: little-endian signed 16-bit samples.
    rate: sample rate in hertz.
    start: index of the first sample in the stream of the chunk.
    words: the times of the words of a voice's clause that are known so far; empty if unknown.

    Raises ValueError for an odd number of bytes or a rate that is not positive.
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
        """The number of samples."""
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
        """Return the samples as float32 in [-1, 1], shape (samples,)."""
        return to_float(self.pcm)

    def int16(self) -> NDArray[np.int16]:
        """Return the samples as int16, shape (samples,)."""
        return np.frombuffer(self.pcm, dtype="<i2")

    def slices(self, size: int) -> Iterator[AudioChunk]:
        """Yield the audio in chunks of at most ``size`` samples."""
        if 0 < len(self) <= size:
            yield self
            return
        for first in range(0, len(self), size):
            yield AudioChunk(self.pcm[2 * first : 2 * (first + size)], self.rate, self.start + first)


def joined(chunks: Sequence[AudioChunk]) -> AudioChunk:
    """Return consecutive chunks as one chunk. ``chunks`` must not be empty."""
    return AudioChunk(b"".join(chunk.pcm for chunk in chunks), chunks[0].rate, chunks[0].start)


def in_samples(ms: float) -> int:
    """Return a duration in milliseconds as whole samples at ``RATE``."""
    return int(ms * RATE / 1000)


def to_float(pcm: bytes) -> Samples:
    """Convert little-endian 16-bit PCM to float32 samples in [-1, 1], shape (samples,)."""
    return np.frombuffer(pcm, dtype="<i2").astype(np.float32) / 32768.0


def to_pcm(samples: Samples) -> bytes:
    """Convert float samples, shape (samples,), to little-endian 16-bit PCM, clipped to [-1, 1]."""
    clipped = np.minimum(np.maximum(samples, -1.0), 1.0)  # np.clip takes twice as long for a frame of 20 ms
    return (clipped * 32767.0).astype("<i2").tobytes()
