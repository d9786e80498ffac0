"""The way of the agent's voice from the play-out clock to the microphone, learnt while it speaks.

A filter of a second in blocks of 32 ms, followed by a Kalman filter in the frequency domain whose covariance
is diagonal: Kuech, Mabande and Enzner, "State-space architecture of the partitioned-block-based acoustic
echo controller" (ICASSP 2014). The covariance says how unsure it is, so that no second rule has to find out
whether somebody speaks over the echo, or whether the filter has been learnt yet.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rejoinder.pipeline.audio.chunk import Samples

BLOCK = 512
"""Samples that are worked on at a time: the window of Silero, which so waits no longer than without."""
BLOCKS = 32
"""Length of the filter: an echo may come a second late, which is a client's buffer, a network and a room."""
ROOM = 5.0
"""Power of the echo against what is played that is thought possible before anything is known."""
KEPT = 0.9995
"""How much of the way is still true a block later. With less it follows faster, and subtracts less."""
OTHERS_KEPT = 0.8
"""How much of the spectrum of other sounds is taken over from the block before."""
SPREAD, AGAIN = 3, 1.0
"""A new stretch of speech may be heard so many blocks earlier or later, with this share of the power each."""
CAUTION, LEAK = 4.0, 0.2
"""What is left is taken for echo up to so many times what is uncertain, and this share of the echo itself."""
LEVEL_KEPT = 0.97
"""How much of the level is taken over from the block before: it is a mean over about a second."""
LEARNING_BLOCKS = 62
"""So many blocks, two seconds of them, are played before the filter is any good where the echo is loud."""
FAINT = 1e-5
"""Energy of a block below which nothing is played: -80 dBFS."""

_BANDS = np.append(np.unique(np.round(np.geomspace(6, 240, 21)).astype(int)), BLOCK + 1)
"""Edges of bands, in bins, from 94 Hz up: about equally wide to the ear."""


class EchoPath:
    """The filter of one session; 0.4 MB.

    level: power of the echo against what is played, uncertainty included.
    """

    def __init__(self) -> None:
        shape = (BLOCKS, BLOCK + 1)
        self.level = ROOM
        self._way: Any = np.zeros(shape, np.complex64)
        self._unsure: Any = np.full(shape, ROOM / BLOCKS, np.float32)
        self._others: Any = np.full(BLOCK + 1, 1e-3, np.float32)
        self._spectra: Any = np.zeros(shape, np.complex64)
        self._before: Samples = np.zeros(BLOCK, np.float32)
        self._powers = (ROOM * 1e-3, 1e-3)
        self._played = 0

    @property
    def learnt(self) -> bool:
        """Tell whether enough was played for the filter to be of use."""
        return self._played >= LEARNING_BLOCKS

    def play(self, block: Samples) -> None:
        """Take the next ``BLOCK`` samples that are played, at 16 kHz."""
        spectrum = np.fft.rfft(np.concatenate((self._before, block)))
        self._before = block
        self._spectra = np.concatenate((spectrum[None].astype(np.complex64), self._spectra[:-1]))

    def hear(self, block: Samples) -> tuple[Samples, float]:
        """Return what was heard at the time of the block played last, without the echo; learn from it.

        The second value is the share of its power that cannot be echo.
        """
        echo = np.fft.irfft((self._spectra * self._way).sum(0))[BLOCK:].astype(np.float32)
        left = block - echo
        error, expected = _spectrum(left), _power(_spectrum(echo))
        heard = np.abs(self._spectra) ** 2
        uncertain = 0.5 * (heard * self._unsure).sum(0)
        share = _unexplained(_power(error), CAUTION * uncertain + LEAK * expected)
        self._follow(expected.sum() + uncertain.sum(), 0.5 * heard.mean(0).sum())
        self._learn(error, heard, uncertain)
        return left, share

    def shift(self) -> None:
        """Note that what is played next may be heard a little earlier or later than before."""
        power = np.abs(self._way) ** 2
        for blocks in range(-SPREAD, SPREAD + 1):
            first, last = max(0, blocks), BLOCKS + min(0, blocks)
            self._unsure[first:last] += AGAIN * power[first - blocks : last - blocks]

    def doubt(self) -> None:
        """Note that echo may have come through: that it may be heard at any other time by now."""
        self._unsure += ROOM * min(self.level, 1.0) / BLOCKS

    def _learn(self, error: Any, heard: Any, uncertain: Any) -> None:
        power = _power(error)
        # What may be echo is no other sound; without the second term it would trust itself too much.
        others = np.maximum(power - uncertain, 0.02 * power)
        self._others = OTHERS_KEPT * self._others + (1 - OTHERS_KEPT) * others
        step = self._unsure / (uncertain + self._others + 1e-6)
        change = np.fft.irfft(step * np.conj(self._spectra) * error, axis=1)
        change[:, BLOCK:] = 0.0  # the filter of a block is no longer than the block
        self._way = (self._way + np.fft.rfft(change, axis=1)).astype(np.complex64)
        moved = (1 - KEPT**2) * np.abs(self._way) ** 2
        self._unsure = (KEPT**2 * (1 - 0.5 * step * heard) * self._unsure + moved).astype(np.float32)

    def _follow(self, echo: float, played: float) -> None:
        if played > FAINT * BLOCK:
            self._played += 1
            self._powers = (LEVEL_KEPT * self._powers[0] + echo, LEVEL_KEPT * self._powers[1] + played)
            self.level = self._powers[0] / self._powers[1]


def _spectrum(block: Samples) -> Any:
    return np.fft.rfft(np.concatenate((np.zeros(BLOCK, np.float32), block))).astype(np.complex64)


def _power(spectrum: Any) -> Any:
    return np.abs(spectrum) ** 2


def _unexplained(power: Any, explained: Any) -> float:
    """Return the share of the power in the bands of speech that is above what explains it, band by band."""
    bands, echo = (np.add.reduceat(each[: _BANDS[-1]], _BANDS[:-1]) for each in (power, explained))
    return float(np.maximum(0.0, bands - echo).sum() / (bands.sum() + 1e-9))
