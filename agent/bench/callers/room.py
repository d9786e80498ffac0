"""A caller's room with an open loudspeaker: the microphone records the agent, delayed and filtered."""

from __future__ import annotations

import numpy as np

from rejoinder.agent.bench.callers.microphone import MICROPHONE_FRAME
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.simulate.player import Player
from rejoinder.pipeline.audio.chunk import Samples

LONGEST_RESPONSE = int(0.6 * CLIENT_RATE)
"""Length of an impulse response that is kept; the rest has less than a hundredth of its power."""


class Room:
    """The path from a loudspeaker to a microphone.

    response: impulse response at 24 kHz, float32 of shape (n,), scaled to unit energy. level: of the echo
        relative to the played audio, in decibels, for white noise. delay: of the buffers, in seconds.
    """

    def __init__(self, response: Samples, level: float, delay: float) -> None:
        kept = response[:LONGEST_RESPONSE].astype(np.float64)
        self.delay = int(delay * CLIENT_RATE)
        self._length = len(kept)
        self._size = 1 << (self._length + MICROPHONE_FRAME - 1).bit_length()
        energy = np.sqrt(np.sum(kept**2))
        self._response = np.fft.rfft(kept / energy * 10 ** (level / 20), self._size)

    def echo(self, player: Player, begin: int) -> Samples:
        """Return the echo in the frame that begins at sample ``begin``.

        It is float32 of shape (MICROPHONE_FRAME,).
        """
        last = begin + MICROPHONE_FRAME - self.delay
        played = player.sound(last - MICROPHONE_FRAME - self._length + 1, last)
        if not played.any():
            return np.zeros(MICROPHONE_FRAME, np.float32)
        heard = np.fft.irfft(np.fft.rfft(played, self._size) * self._response, self._size)
        echo: Samples = heard[self._length - 1 : self._length - 1 + MICROPHONE_FRAME].astype(np.float32)
        return echo
