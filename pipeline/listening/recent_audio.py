"""The newest audio of a session: for the turn model, and for the start of a turn."""

from __future__ import annotations

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk

MEMORY_SAMPLES = 8 * RATE
"""Most audio that is kept, in samples."""


class RecentAudio:
    """The newest ``MEMORY_SAMPLES`` of a session's audio, 16-bit mono at 16 kHz.

    end: index of the sample after the newest one.
    """

    def __init__(self) -> None:
        self.end = 0
        # Bytes, not chunks: the garbage collector would visit 80,000 chunks of 200 sessions.
        self._pcm = bytearray()

    def __len__(self) -> int:
        """The number of samples."""
        return len(self._pcm) // 2

    def add(self, chunk: AudioChunk) -> None:
        """Add the next audio."""
        self._pcm += chunk.pcm
        del self._pcm[: -2 * MEMORY_SAMPLES]
        self.end = chunk.end

    def since(self, start: int) -> AudioChunk:
        """Return the audio from sample ``start`` on, or from the oldest sample kept."""
        oldest = self.end - len(self)
        start = max(start, oldest)
        return AudioChunk(bytes(self._pcm[2 * (start - oldest) :]), RATE, start)
