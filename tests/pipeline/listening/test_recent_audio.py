"""The newest audio of a session is kept, by its position."""

from __future__ import annotations

import numpy as np

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk
from rejoinder.pipeline.listening.recent_audio import MEMORY_SAMPLES, RecentAudio


def filled(seconds: int) -> RecentAudio:
    """Return audio in which each second holds its own number as samples."""
    recent = RecentAudio()
    for second in range(seconds):
        recent.add(AudioChunk(np.full(RATE, second, "<i2").tobytes(), RATE, second * RATE))
    return recent


def test_audio_is_found_by_its_sample() -> None:
    chunk = filled(3).since(2 * RATE - 1)
    assert (chunk.start, chunk.end) == (2 * RATE - 1, 3 * RATE)
    assert list(np.unique(chunk.int16())) == [1, 2]


def test_the_oldest_audio_is_dropped() -> None:
    recent = filled(10)
    chunk = recent.since(0)
    assert len(recent) == len(chunk) == MEMORY_SAMPLES
    assert (chunk.start, chunk.end) == (10 * RATE - MEMORY_SAMPLES, 10 * RATE)
    assert chunk.int16()[0] == 2


def test_no_audio_is_an_empty_chunk() -> None:
    assert len(RecentAudio().since(0)) == 0
    assert len(filled(1).since(2 * RATE)) == 0
