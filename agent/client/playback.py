"""Audio on its way from the event loop to PortAudio's thread."""

from __future__ import annotations

import threading

PLAYBACK_SECONDS = 1.0
"""Most audio that waits for a stalled speaker. A session sends only 0.2 s ahead, so more is late."""


class Playback:
    """Passes 16-bit mono audio to PortAudio's thread, which takes it at the pace of playing.

    dropped: number of bytes that were dropped because the speaker did not keep up.
    """

    def __init__(self, rate: int, seconds: float = PLAYBACK_SECONDS) -> None:
        self.dropped = 0
        self._limit = 2 * int(seconds * rate)
        self._pcm = bytearray()
        self._held = False
        self._lock = threading.Lock()

    def put(self, pcm: bytes) -> None:
        """Queue audio; drop the oldest audio above the limit."""
        with self._lock:
            self._pcm += pcm
            if (excess := len(self._pcm) - self._limit) > 0:
                del self._pcm[:excess]
                self.dropped += excess

    def take(self, size: int) -> bytes:
        """Return exactly ``size`` bytes, padded with silence."""
        with self._lock:
            ready = 0 if self._held else size
            pcm = bytes(self._pcm[:ready])
            del self._pcm[:ready]
        return pcm.ljust(size, b"\0")

    @property
    def waiting(self) -> int:
        """Bytes that the speaker has not taken."""
        return len(self._pcm)

    def clear(self) -> int:
        """Drop the queued audio and return its size in bytes. The speaker is silent until ``put``."""
        with self._lock:
            unheard = len(self._pcm)
            self._pcm.clear()
            self._held = False
        return unheard

    def hold(self) -> None:
        """Play silence and keep the queued audio."""
        self._held = True

    def release(self) -> None:
        """Continue at the sample at which ``hold`` stopped."""
        self._held = False
