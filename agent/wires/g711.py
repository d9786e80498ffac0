"""G.711, the audio of telephone lines: mu-law and A-law, 8 bits per sample, by lookup tables.

Both laws are ITU-T G.711 (11/88): 128 intervals of magnitude for each sign, in 8 segments whose steps double.
A code decodes to the middle of its interval. The recommendation's values, of 14 bits for mu-law and 13 bits
for A-law, are shifted up to 16 bits.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Law = Literal["mulaw", "alaw"]

_INTERVAL = np.arange(128)
_SEGMENT = _INTERVAL >> 4
_STEP = _INTERVAL & 15


def _tables(law: Law) -> tuple[NDArray[np.uint8], NDArray[np.int16]]:
    """Return two tables: the code of each 16-bit sample, indexed as an unsigned number, and the inverse."""
    if law == "mulaw":
        width = 8 << _SEGMENT
        begin = ((_STEP + 16) * width) - 132  # the first interval reaches across zero
        positive, negative = 0xFF - _INTERVAL, 0x7F - _INTERVAL
    else:
        width = 16 << np.maximum(_SEGMENT - 1, 0)  # the first two segments have the same step
        begin = (_STEP + 16 * (_SEGMENT > 0)) * width
        positive, negative = (0x80 | _INTERVAL) ^ 0x55, _INTERVAL ^ 0x55  # every other bit is inverted
    samples = np.zeros(256, np.int16)
    samples[positive] = begin + width // 2
    samples[negative] = -(begin + width // 2)
    every = np.arange(2**16, dtype=np.uint16).view(np.int16).astype(np.int32)
    interval = np.searchsorted(begin, np.abs(every), side="right") - 1
    codes = np.where(every < 0, negative[interval], positive[interval])
    return codes.astype(np.uint8), samples


_TABLES: dict[Law, tuple[NDArray[np.uint8], NDArray[np.int16]]] = {
    "mulaw": _tables("mulaw"),
    "alaw": _tables("alaw"),
}


def encode(pcm: bytes, law: Law) -> bytes:
    """Return the codes of little-endian 16-bit samples, one byte each.

    Raises ValueError for half a sample.
    """
    return bytes(_TABLES[law][0][np.frombuffer(pcm, "<u2")].tobytes())


def decode(data: bytes, law: Law) -> bytes:
    """Return the little-endian 16-bit samples of codes."""
    return bytes(_TABLES[law][1][np.frombuffer(data, np.uint8)].astype("<i2").tobytes())
