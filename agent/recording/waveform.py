"""The waveform of a recording, for a picture of it."""

from __future__ import annotations

from io import BufferedIOBase

import numpy as np

from rejoinder.pipeline import RATE

MOST_PEAKS = 1000
"""Most peaks of one side: a picture has no more columns."""
PEAKS_AT_ONCE = 16
"""Peaks whose samples are in memory together."""


def peaks(file: BufferedIOBase, seconds: float) -> tuple[list[int], list[int]]:
    """Return the loudest samples of the caller and of the agent in equal parts of a recording, 0 to 100.

    file: the audio, not encrypted. seconds: its duration. It reads the whole file, and raises OSError and
    RuntimeError where that cannot be read.
    """
    import soundfile

    if seconds <= 0.0:  # it is not known yet
        return [], []
    size = max(1, -(-int(seconds * RATE) // MOST_PEAKS))
    found = []
    with soundfile.SoundFile(file) as opened:
        for block in opened.blocks(PEAKS_AT_ONCE * size, dtype="float32", always_2d=True):
            padded = np.pad(np.abs(block), ((0, -len(block) % size), (0, 0)))
            found.append(padded.reshape(-1, size, 2).max(axis=1))
    loudest = np.concatenate(found) if found else np.zeros((0, 2))
    caller, agent = np.rint(100.0 * loudest[:MOST_PEAKS].T).astype(int).clip(0, 100).tolist()
    return caller, agent
