"""The user's audio on its way to the listening stages, and the times at which it arrived."""

from __future__ import annotations

import asyncio
import math
from collections import deque

import numpy as np

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, to_float
from rejoinder.pipeline.channel import Channel

MAX_WAITING_SECONDS = 1.0
"""Most audio that waits for voice activity detection. ``UserAudio.hear`` then blocks its caller."""
HEAR_SLICE = RATE // 50
"""Longest chunk of audio in samples. Longer ones are cut, so that the queue's size bounds its seconds."""
IDLE_SLICE = RATE * 6 // 10
"""Longest chunk in samples while the line is idle: bursts stay whole, which saves processor time."""
STALE_SECONDS = 2.0
"""Audio that came earlier than this, in seconds, has no level any more."""
LEVEL_SAMPLES = RATE // 10
"""Most samples of which the level is taken: a tenth of a second."""
QUIETEST_DB = -96.0
"""The level of digital silence: one step of 16 bits."""
MAX_ARRIVALS = 512
"""Most pieces of audio whose time of arrival is kept: those of the last seconds."""


class UserAudio:
    """Takes the audio of one session, in order.

    chunks: the audio for voice activity detection.
    """

    def __init__(self) -> None:
        self.chunks: Channel[AudioChunk] = Channel(int(MAX_WAITING_SECONDS * RATE / HEAR_SLICE), "heard")
        self._received = 0
        self._latest = AudioChunk(b"", RATE)
        self._arrivals: deque[tuple[int, float]] = deque(maxlen=MAX_ARRIVALS)

    @property
    def received(self) -> int:
        """The number of samples taken so far, at 16 kHz."""
        return self._received

    def level(self) -> float | None:
        """Return the level of the latest audio in dB of full scale, None where none has come lately."""
        if not len(self._latest) or _now() - self._arrivals[-1][1] > STALE_SECONDS:
            return None
        power = float(np.mean(np.square(to_float(self._latest.pcm[-2 * LEVEL_SAMPLES :]))))
        return max(QUIETEST_DB, 10.0 * math.log10(power)) if power else QUIETEST_DB

    async def hear(self, pcm: bytes, is_idle: bool) -> None:
        """Take little-endian 16-bit mono PCM at 16 kHz; wait while one second is unprocessed.

        is_idle: whether the line is idle. Cancelling drops the part that was not taken yet; the next audio
        follows the part that was.
        """
        chunk = AudioChunk(pcm, RATE, self._received)
        self._arrivals.append((chunk.end, _now()))
        self._latest = chunk
        whole = is_idle and not len(self.chunks) and 0 < len(chunk) <= IDLE_SLICE
        for piece in [chunk] if whole else chunk.slices(HEAR_SLICE):
            await self.chunks.send(piece)
            self._received = piece.end

    async def wake(self) -> None:
        """Wake the stages without audio. Cancelling while the channel is full wakes nothing."""
        await self.chunks.send(AudioChunk(b"", RATE, self._received))

    def arrival(self, sample: int) -> float:
        """Return the loop time at which a sample arrived; now if it has not."""
        for end, at in self._arrivals:
            if end >= sample:
                return at
        return _now()


def _now() -> float:
    return asyncio.get_running_loop().time()
