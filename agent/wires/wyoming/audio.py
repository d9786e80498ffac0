"""Converts audio of the format that a Wyoming client announces to the recogniser's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rejoinder.agent.wires.resampler import Resampler
from rejoinder.agent.wires.wyoming.protocol import Event, whole
from rejoinder.pipeline import RATE, AudioChunk, ProtocolError

MAX_SECONDS = 60
"""Most audio in one request, in seconds. A spoken command has a few."""


@dataclass(frozen=True, slots=True)
class Format:
    """An audio format.

    rate: in hertz. width: bytes per sample; one-byte samples are unsigned. channels: their number.
    """

    rate: int
    width: int
    channels: int

    @classmethod
    def of(cls, data: dict[str, Any]) -> Format:
        """Return the format in an event's data. Raises ProtocolError."""
        return cls(
            whole(data, "rate", 4_000, 192_000), whole(data, "width", 1, 4), whole(data, "channels", 1, 8)
        )

    def mono(self, payload: bytes) -> bytes:
        """Return audio as mono 16-bit PCM. Raises ProtocolError for incomplete samples."""
        if len(payload) % (self.width * self.channels):
            raise ProtocolError(
                f"{len(payload)} bytes are not a multiple of {self.channels} channels x {self.width} bytes",
                "invalid",
            )
        if (self.width, self.channels) == (2, 1):
            return payload
        octets = np.frombuffer(payload, np.uint8).reshape(-1, self.width)
        if self.width == 1:
            samples: NDArray[Any] = (octets[:, 0].astype(np.int32) - 128) << 8
        else:  # keep the two most significant bytes
            samples = np.ascontiguousarray(octets[:, -2:]).view("<i2")[:, 0].astype(np.int32)
        return bytes(samples.reshape(-1, self.channels).mean(axis=1).astype("<i2").tobytes())


class Ear:
    """Collects the audio of one request, at the recogniser's sample rate."""

    def __init__(self, format_: Format) -> None:
        self.format = format_
        self._frames = 0
        self._pcm = bytearray()
        self._resampler = None if format_.rate == RATE else Resampler(format_.rate, RATE)

    def feed(self, event: Event) -> None:
        """Add an ``audio-chunk``. Raises ProtocolError for another format, or too much audio."""
        if Format.of(event.data) != self.format:
            raise ProtocolError("the format of the audio changed before its audio-stop", "invalid")
        pcm = self.format.mono(event.payload)
        self._frames += len(pcm) // 2
        if self._frames > MAX_SECONDS * self.format.rate:
            raise ProtocolError(f"more than {MAX_SECONDS} s of audio in one request", "too-long")
        self._pcm += self._resampler.feed(pcm) if self._resampler else pcm

    def all(self) -> AudioChunk:
        """Return all the audio. Call it once, at the end."""
        if self._resampler and self._frames:
            self._pcm += self._resampler.feed(b"", last=True)
        return AudioChunk(bytes(self._pcm), RATE)
