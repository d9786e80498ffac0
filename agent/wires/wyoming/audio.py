"""Audio of whatever format a Wyoming client announces, as the recogniser hears it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rejoinder.agent.wires.resampler import Resampler
from rejoinder.agent.wires.wyoming.protocol import Event, whole
from rejoinder.pipeline import RATE, AudioChunk, ProtocolError

MAX_SECONDS = 60
"""Audio of one request: a spoken command has a few seconds."""


@dataclass(frozen=True, slots=True)
class Format:
    """How audio is written: hertz, bytes of a sample (one byte is unsigned), and samples side by side."""

    rate: int
    width: int
    channels: int

    @classmethod
    def of(cls, data: dict[str, Any]) -> Format:
        """Return the format that an event announces. Raises ProtocolError."""
        return cls(
            whole(data, "rate", 4_000, 192_000), whole(data, "width", 1, 4), whole(data, "channels", 1, 8)
        )

    def mono(self, payload: bytes) -> bytes:
        """Return the audio as mono 16-bit PCM. Raises ProtocolError."""
        if len(payload) % (self.width * self.channels):
            raise ProtocolError(
                f"{len(payload)} bytes are no whole samples of {self.channels} x {self.width} bytes",
                "invalid",
            )
        if (self.width, self.channels) == (2, 1):
            return payload
        octets = np.frombuffer(payload, np.uint8).reshape(-1, self.width)
        if self.width == 1:
            samples: NDArray[Any] = (octets[:, 0].astype(np.int32) - 128) << 8
        else:  # the two highest bytes are the sample at 16 bits
            samples = np.ascontiguousarray(octets[:, -2:]).view("<i2")[:, 0].astype(np.int32)
        return bytes(samples.reshape(-1, self.channels).mean(axis=1).astype("<i2").tobytes())


class Ear:
    """The audio of one request so far, at the rate of the listening half."""

    def __init__(self, format_: Format) -> None:
        self.format = format_
        self._frames = 0
        self._pcm = bytearray()
        self._resampler = None if format_.rate == RATE else Resampler(format_.rate, RATE)

    def feed(self, event: Event) -> None:
        """Add an ``audio-chunk``. Raises ProtocolError."""
        if Format.of(event.data) != self.format:
            raise ProtocolError("the format of the audio changes in its midst", "invalid")
        pcm = self.format.mono(event.payload)
        self._frames += len(pcm) // 2
        if self._frames > MAX_SECONDS * self.format.rate:
            raise ProtocolError(f"more than {MAX_SECONDS} s of audio in one request", "too-long")
        self._pcm += self._resampler.feed(AudioChunk(pcm, self.format.rate)) if self._resampler else pcm

    def all(self) -> AudioChunk:
        """Return what was heard; nothing can be added any more."""
        if self._resampler and self._frames:
            self._pcm += self._resampler.feed(AudioChunk(b"", self.format.rate), last=True)
        return AudioChunk(bytes(self._pcm), RATE)
