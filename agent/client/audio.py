"""The sample rate of a call's audio, and the conversion of what a call accepts to 16-bit PCM."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rejoinder.pipeline.audio.chunk import to_pcm

CLIENT_RATE = 24_000
"""Sample rate of the Realtime protocol's audio in both directions, in hertz."""


def mono(audio: bytes | bytearray | memoryview | NDArray[Any]) -> bytes:
    """Return audio as 16-bit little-endian PCM.

    audio: bytes of 16-bit PCM, or an array of shape (n,) or (n, 1), int16 or floats in [-1, 1]. Raises
    ValueError for another shape or dtype.
    """
    if not isinstance(audio, np.ndarray):
        return bytes(audio)
    if audio.ndim == 2 and audio.shape[1] == 1:
        audio = audio[:, 0]
    if audio.ndim != 1:
        raise ValueError(f"audio of shape {audio.shape} is not mono: try audio.mean(axis=1)")
    if audio.dtype == np.int16:
        return audio.astype("<i2").tobytes()
    if np.issubdtype(audio.dtype, np.floating):
        return to_pcm(audio)
    raise ValueError(f"audio has to be 16-bit integers or floats, not {audio.dtype}: convert it to float32")
