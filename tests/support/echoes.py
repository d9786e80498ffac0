"""Babble, and a room whose microphone hears the loudspeaker."""

from __future__ import annotations

import numpy as np

from rejoinder.pipeline.audio.chunk import RATE, Samples


def babble(seconds: float, seed: int = 0) -> Samples:
    """Return noise in the rhythm and the colour of speech."""
    draw = np.random.default_rng(seed)
    length = int(seconds * RATE)
    colour = np.convolve(draw.normal(0.0, 1.0, length + 8), np.ones(8) / 8, "valid")[:length]
    syllables = np.repeat(draw.uniform(0.0, 1.0, length // 3200 + 1) ** 2, 3200)[:length]
    return (0.3 * colour * syllables).astype(np.float32)


def room(seed: int = 0) -> Samples:
    """Return a response of 0.2 s that dies away, with unit energy."""
    times = np.arange(int(0.2 * RATE)) / RATE
    response = np.random.default_rng(seed).normal(0.0, 1.0, len(times)) * np.exp(-times / 0.04)
    return (response / np.sqrt(np.sum(response**2))).astype(np.float32)
