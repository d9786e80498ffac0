"""Bounds what the compressed messages of one client inflate to, over all of its messages."""

from __future__ import annotations

from collections.abc import Callable

from websockets.extensions.base import Extension
from websockets.frames import Frame

FREE_RATIO = 4
"""Bytes that each received byte may inflate to without being counted. Audio in base64 inflates to 1.4, other
messages to less than this."""
INFLATED_BURST_BYTES = 32 * 2**20
"""Bytes beyond that which a client may cause at once: two of the longest messages."""
INFLATED_PER_S = 2 * 2**20
"""Bytes beyond that which a client may cause in a second, on average: the silence of 30 calls."""


class Inflation:
    """What one client's messages have inflated to. Times are arguments, in seconds.

    over: whether it was too much.
    """

    def __init__(self) -> None:
        self.over = False
        self._level = 0.0
        self._last = 0.0

    def add(self, received: int, inflated: int, now: float) -> None:
        """Count bytes before and after inflating."""
        self._level = max(0.0, self._level - (now - self._last) * INFLATED_PER_S)
        self._last = now
        self._level += max(0, inflated - FREE_RATIO * received)
        self.over = self.over or self._level > INFLATED_BURST_BYTES


class CountedExtension(Extension):
    """An extension of a WebSocket whose received bytes are counted. now: returns seconds."""

    def __init__(self, extension: Extension, inflation: Inflation, now: Callable[[], float]) -> None:
        self.name = extension.name
        self._extension = extension
        self._inflation = inflation
        self._now = now

    def decode(self, frame: Frame, *, max_size: int | None = None) -> Frame:
        """Return the frame as the other side meant it. Raises the errors of the extension."""
        decoded = self._extension.decode(frame, max_size=max_size)
        self._inflation.add(len(frame.data), len(decoded.data), self._now())
        return decoded

    def encode(self, frame: Frame) -> Frame:
        """Return the frame as it is sent."""
        return self._extension.encode(frame)
