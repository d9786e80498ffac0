"""Keeps faults in recordings from the replies that they listen to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from rejoinder.pipeline import AudioChunk
from rejoinder.pipeline.audio.played import Listeners, PlayoutListener


class GuardedListeners(Listeners):
    """Listeners whose faults a context manager takes. guard: returns it."""

    def __init__(
        self, guard: Callable[[], AbstractContextManager[None]], *listeners: PlayoutListener
    ) -> None:
        super().__init__(*listeners)
        self._guard = guard

    def play(self, chunk: AudioChunk, at: float, text: str = "", turn: int = 0) -> None:
        """Pass on that audio plays."""
        with self._guard():
            super().play(chunk, at, text, turn)

    def hold(self, at: float) -> None:
        """Pass on that the client holds its audio."""
        with self._guard():
            super().hold(at)

    def release(self, at: float) -> None:
        """Pass on that the client plays the audio that it held."""
        with self._guard():
            super().release(at)

    def cut(self, at: float) -> None:
        """Pass on that the audio stops."""
        with self._guard():
            super().cut(at)

    def truncate(self, turn: int, seconds: float) -> None:
        """Pass on how much of a reply was played."""
        with self._guard():
            super().truncate(turn, seconds)

    def play_again(self, seconds: float, at: float) -> None:
        """Pass on that audio plays again."""
        with self._guard():
            super().play_again(seconds, at)
