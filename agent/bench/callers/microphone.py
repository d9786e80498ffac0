"""A simulated microphone of a client, without I/O. It counts samples from the start of the call."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.pipeline.audio.chunk import Samples, to_pcm

MICROPHONE_FRAME = CLIENT_RATE // 50
"""Samples in one frame of the microphone: 20 ms."""


class Microphone:
    """The caller's speech, frame by frame, with background noise in between.

    background: noise to repeat, float32 of shape (n,); silence if empty. echo: returns the echo in the frame
        that begins at a sample, float32 of shape (MICROPHONE_FRAME,).
    """

    def __init__(
        self, background: Samples | None = None, echo: Callable[[int], Samples] | None = None
    ) -> None:
        self._echo = echo
        empty = background is None or not len(background)
        self._background = (
            np.zeros(MICROPHONE_FRAME, np.float32) if empty or background is None else background
        )
        self._queue: list[Samples] = []
        self._waiting = 0
        self._frames: list[Samples] = []

    @property
    def position(self) -> int:
        """Samples recorded so far."""
        return len(self._frames) * MICROPHONE_FRAME

    @property
    def speaking(self) -> bool:
        """Whether queued speech is left."""
        return self._waiting > 0

    def say(self, audio: Samples) -> int:
        """Queue speech after the current speech. Return the sample at which it begins.

        audio: float32 of shape (n,) at ``CLIENT_RATE``.
        """
        begin = self.position + self._waiting
        self._queue.append(audio)
        self._waiting += len(audio)
        return begin

    def frame(self) -> bytes:
        """Return the next frame as 16-bit PCM."""
        said = np.concatenate(self._queue) if self._queue else np.zeros(0, np.float32)
        frame = said[:MICROPHONE_FRAME]
        self._queue = [said[MICROPHONE_FRAME:]] if len(said) > MICROPHONE_FRAME else []
        self._waiting = max(0, len(said) - MICROPHONE_FRAME)
        if missing := MICROPHONE_FRAME - len(frame):
            places = self.position + len(frame) + np.arange(missing)
            frame = np.concatenate((frame, self._background[places % len(self._background)]))
        if self._echo:
            frame = frame + self._echo(self.position)
        self._frames.append(frame)
        return to_pcm(frame)

    def due(self) -> float:
        """Return when the next frame is complete, in seconds since the call began."""
        return (self.position + MICROPHONE_FRAME) / CLIENT_RATE

    def track(self) -> Samples:
        """Return everything recorded so far, float32 of shape (position,)."""
        return np.concatenate(self._frames) if self._frames else np.zeros(0, np.float32)
