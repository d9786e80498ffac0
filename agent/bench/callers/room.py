"""A caller's room with an open loudspeaker: the agent is heard in the microphone, later and coloured."""

from __future__ import annotations

import numpy as np

from rejoinder.agent.client.player import FRAME, RATE, Player
from rejoinder.pipeline.audio.chunk import Samples

LONGEST = int(0.6 * RATE)
"""Of an impulse response this much is kept: what follows has less than a hundredth of its power."""


class Room:
    """The way from a loudspeaker to a microphone.

    response: an impulse response at 24 kHz; it is scaled to unit energy. level: decibels of the echo against
        what is played, on white noise. delay: seconds of buffers before the response begins.
    """

    def __init__(self, response: Samples, level: float, delay: float) -> None:
        kept = response[:LONGEST].astype(np.float64)
        self.delay = int(delay * RATE)
        self._length = len(kept)
        self._size = 1 << (self._length + FRAME - 1).bit_length()
        energy = np.sqrt(np.sum(kept**2))
        self._response = np.fft.rfft(kept / energy * 10 ** (level / 20), self._size)

    def echo(self, player: Player, begin: int) -> Samples:
        """Return the frame of echo that the microphone hears from sample ``begin`` of the call on."""
        last = begin + FRAME - self.delay
        played = player.sound(last - FRAME - self._length + 1, last)
        if not played.any():
            return np.zeros(FRAME, np.float32)
        heard = np.fft.irfft(np.fft.rfft(played, self._size) * self._response, self._size)
        echo: Samples = heard[self._length - 1 : self._length - 1 + FRAME].astype(np.float32)
        return echo
