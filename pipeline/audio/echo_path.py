"""The echo path from the agent's play-out to the user's microphone, estimated while the agent speaks.

It is a filter of one second in blocks of 32 ms, estimated by a Kalman filter in the frequency domain with a
diagonal covariance: Kuech, Mabande and Enzner, "State-space architecture of the partitioned-block-based
acoustic echo controller" (ICASSP 2014). The covariance measures the uncertainty of the estimate, so no
separate rule has to detect speech over the echo or a filter that is not learnt yet.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rejoinder.pipeline.audio.chunk import Samples

ECHO_BLOCK = 512
"""Samples per block. It equals the window of Silero, so the blocks add no delay."""
BLOCKS = 32
"""Length of the filter in blocks: one second covers a client's buffer, a network and a room."""
ROOM = 5.0
"""Assumed power of the echo relative to the played audio before anything is known."""
KEPT = 0.9995
"""Share of the path that stays valid for a block. A lower value adapts faster and removes less echo."""
OTHERS_KEPT = 0.8
"""Weight of the previous block in the mean spectrum of the sounds that are not echo."""
DELAY_SPREAD = 3
"""Blocks by which the delay may change, in either direction, when the agent starts to speak again."""
DELAY_DOUBT = 1.0
"""Uncertainty added for each such change of the delay, as a share of the path's power."""
CAUTION = 4.0
"""Factor on the uncertain power in the estimate of the remaining echo."""
LEAK = 0.2
"""Share of the estimated echo that is added to the estimate of the remaining echo."""
LEVEL_KEPT = 0.97
"""Weight of the previous block in the mean level, which averages over about a second."""
LEARNING_BLOCKS = 62
"""Played blocks before the filter is useful for a loud echo: two seconds."""
FAINT = 1e-5
"""Energy of a block below which it counts as silence: -80 dBFS."""

_BANDS = np.append(np.unique(np.round(np.geomspace(6, 240, 21)).astype(int)), ECHO_BLOCK + 1)
"""Edges of the frequency bands, in bins, from 94 Hz up: about equally wide to the ear."""


class EchoPath:
    """The echo path filter of one session; it takes 0.4 MB.

    level: power of the echo relative to the played audio, uncertainty included.
    """

    def __init__(self) -> None:
        shape = (BLOCKS, ECHO_BLOCK + 1)
        self.level = ROOM
        self._way: Any = np.zeros(shape, np.complex64)
        self._unsure: Any = np.full(shape, ROOM / BLOCKS, np.float32)
        self._others: Any = np.full(ECHO_BLOCK + 1, 1e-3, np.float32)
        self._spectra: Any = np.zeros(shape, np.complex64)
        self._before: Samples = np.zeros(ECHO_BLOCK, np.float32)
        self._powers = (ROOM * 1e-3, 1e-3)
        self._played = 0

    @property
    def learnt(self) -> bool:
        """Whether enough audio was played for the filter to be useful."""
        return self._played >= LEARNING_BLOCKS

    def play(self, block: Samples) -> None:
        """Add the next played block: shape (``ECHO_BLOCK``,), float32, 16 kHz."""
        spectrum = np.fft.rfft(np.concatenate((self._before, block)))
        self._before = block
        self._spectra = np.concatenate((spectrum[None].astype(np.complex64), self._spectra[:-1]))

    def hear(self, block: Samples) -> tuple[Samples, float]:
        """Remove the echo from a microphone block, and learn from it.

        block: the audio recorded while the last block played: shape (``ECHO_BLOCK``,), float32, 16 kHz.
        Returns the block without the estimated echo, and the share of its power that cannot be echo. The
        result is never louder than the block: a wrong estimate would be a sound in a silent microphone.
        """
        echo = np.fft.irfft((self._spectra * self._way).sum(0))[ECHO_BLOCK:].astype(np.float32)
        left = block - echo
        error, expected = _spectrum(left), _power(_spectrum(echo))
        heard = np.abs(self._spectra) ** 2
        uncertain = 0.5 * (heard * self._unsure).sum(0)
        share = _unexplained(_power(error), CAUTION * uncertain + LEAK * expected)
        self._follow(expected.sum() + uncertain.sum(), 0.5 * heard.mean(0).sum())
        self._learn(error, heard, uncertain)
        louder = np.dot(left, left) / max(float(np.dot(block, block)), 1e-12)
        return left if louder <= 1.0 else left / np.sqrt(louder, dtype=np.float32), share

    def shift(self) -> None:
        """Raise the uncertainty of the delay: the next audio may be heard earlier or later than before."""
        power = np.abs(self._way) ** 2
        for blocks in range(-DELAY_SPREAD, DELAY_SPREAD + 1):
            first, last = max(0, blocks), BLOCKS + min(0, blocks)
            self._unsure[first:last] += DELAY_DOUBT * power[first - blocks : last - blocks]

    def doubt(self) -> None:
        """Raise the uncertainty of the whole path, because echo may have come through."""
        self._unsure += ROOM * min(self.level, 1.0) / BLOCKS

    def _learn(self, error: Any, heard: Any, uncertain: Any) -> None:
        power = _power(error)
        # Power that may be echo is not another sound. The second term keeps the filter from overconfidence.
        others = np.maximum(power - uncertain, 0.02 * power)
        self._others = OTHERS_KEPT * self._others + (1 - OTHERS_KEPT) * others
        step = self._unsure / (uncertain + self._others + 1e-6)
        change = np.fft.irfft(step * np.conj(self._spectra) * error, axis=1)
        change[:, ECHO_BLOCK:] = 0.0  # the filter of a block is no longer than the block
        self._way = (self._way + np.fft.rfft(change, axis=1)).astype(np.complex64)
        moved = (1 - KEPT**2) * np.abs(self._way) ** 2
        self._unsure = (KEPT**2 * (1 - 0.5 * step * heard) * self._unsure + moved).astype(np.float32)

    def _follow(self, echo: float, played: float) -> None:
        if played > FAINT * ECHO_BLOCK:
            self._played += 1
            self._powers = (LEVEL_KEPT * self._powers[0] + echo, LEVEL_KEPT * self._powers[1] + played)
            self.level = self._powers[0] / self._powers[1]


def _spectrum(block: Samples) -> Any:
    return np.fft.rfft(np.concatenate((np.zeros(ECHO_BLOCK, np.float32), block))).astype(np.complex64)


def _power(spectrum: Any) -> Any:
    return np.abs(spectrum) ** 2


def _unexplained(power: Any, explained: Any) -> float:
    """Return the share of the power in the speech bands that exceeds ``explained``, band by band."""
    bands, echo = (np.add.reduceat(each[: _BANDS[-1]], _BANDS[:-1]) for each in (power, explained))
    return float(np.maximum(0.0, bands - echo).sum() / (bands.sum() + 1e-9))
