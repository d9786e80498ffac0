"""Brings recordings to one level: a caller has one, and whose voice counts depends on it."""

from __future__ import annotations

import numpy as np

from rejoinder.pipeline.audio.chunk import Samples

LEVEL = 0.05
"""RMS of a caller's speech: -26 dBFS, the level of a headset."""


def at_level(audio: Samples, decibels: float = 0.0) -> Samples:
    """Return audio whose loud samples have ``decibels`` relative to the level of the callers' speech."""
    loud = audio[np.abs(audio) > 0.1 * np.abs(audio).max(initial=0.0)]
    if not len(loud):
        return audio
    wanted = LEVEL * 10 ** (decibels / 20)
    level: Samples = np.clip(audio * (wanted / np.sqrt(np.mean(loud**2))), -1.0, 1.0).astype(np.float32)
    return level
