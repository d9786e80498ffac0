"""Collects the keys that a caller presses into one input, which ends with # or a pause."""

from __future__ import annotations

from rejoinder.pipeline import RATE

KEYS = "0123456789*#ABCD"
"""The keys of a telephone (ITU-T Q.23)."""
PAUSE_SECONDS = 2.0
"""Silence that ends an input, in seconds."""
MOST_DIGITS = 64
"""Most keys in one input."""


class Keypad:
    """The keys of one call. Times count samples received from the caller (16 kHz)."""

    def __init__(self) -> None:
        self._keys = ""
        self._at = 0

    @property
    def waiting(self) -> bool:
        """Whether an input has begun and not ended."""
        return bool(self._keys)

    def press(self, key: str, now: int) -> str | None:
        """Take one key; return the input, without its final #, if this key ends it."""
        if len(key) != 1 or key not in KEYS:
            return None
        if key == "#":
            return self._take() or key
        self._keys, self._at = self._keys + key, now
        return self._take() if len(self._keys) == MOST_DIGITS else None

    def look(self, now: int) -> str | None:
        """Return the input if the caller has paused for ``PAUSE_SECONDS``."""
        return self._take() if self._keys and now - self._at >= PAUSE_SECONDS * RATE else None

    def _take(self) -> str:
        keys, self._keys = self._keys, ""
        return keys
