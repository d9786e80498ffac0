"""The tones of telephone keys, for lines that have no command for them (ITU-T Q.23 and Q.24)."""

from __future__ import annotations

import numpy as np

from rejoinder.pipeline import AudioChunk, to_pcm
from rejoinder.pipeline.audio.chunk import Samples

TONE_KEYS = "123A456B789C*0#D"
"""The keys of a telephone, row by row."""
ROWS = (697, 770, 852, 941)
"""The lower frequency of each row, in hertz."""
COLUMNS = (1209, 1336, 1477, 1633)
"""The upper frequency of each column, in hertz."""
TONE_RATE = 8000
"""Sample rate of the tones, in hertz."""
TONE_MS = 100
"""Length of a tone, and of the silence behind it, in milliseconds. Receivers need 40 ms of each (Q.24)."""
TONE_LEVEL = 0.25
"""Amplitude of one of the two frequencies: -12 dBFS, so that both together do not clip."""


def tones(digits: str) -> AudioChunk:
    """Return the tones of keys, with a silence behind each. Raises ValueError for another character."""
    size = TONE_RATE * TONE_MS // 1000
    times = np.arange(size, dtype=np.float32) / TONE_RATE
    parts: list[Samples] = []
    for digit in digits:
        row, column = divmod(TONE_KEYS.index(digit), len(COLUMNS))
        lower, upper = (np.sin(2 * np.pi * frequency * times) for frequency in (ROWS[row], COLUMNS[column]))
        parts += [(TONE_LEVEL * (lower + upper)).astype(np.float32), np.zeros(size, np.float32)]
    return AudioChunk(to_pcm(np.concatenate(parts)), TONE_RATE)
