"""Who receives the agent's audio with the times at which it plays: echo removal, and recordings of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rejoinder.pipeline.audio.chunk import AudioChunk


class PlayoutListener(Protocol):
    """Receives what the caller hears of the agent. Times are ``loop.time()`` in seconds."""

    def play(self, chunk: AudioChunk, at: float, text: str = "", turn: int = 0) -> None:
        """Record that ``chunk`` of reply ``turn`` plays at time ``at``.

        chunk.start: counts from the reply's first sample. text: the clause that begins with it, or "".
        """

    def hold(self, at: float) -> None:
        """Record that the client holds the audio planned after ``at`` until ``release``."""

    def release(self, at: float) -> None:
        """Record that play-out resumes at ``at`` with the audio that the client holds."""

    def cut(self, at: float) -> None:
        """Record that nothing that was sent plays from ``at`` on."""

    def truncate(self, turn: int, seconds: float) -> None:
        """Record that the client played only ``seconds`` of reply ``turn``."""

    def play_again(self, seconds: float, at: float) -> None:
        """Record that the last ``seconds`` of the audio play again from ``at`` on, and nothing else."""


class Listeners:
    """Passes everything on to all listeners of one session. They may come and go while it speaks."""

    def __init__(self, *listeners: PlayoutListener) -> None:
        self._all = list(listeners)

    def add(self, listener: PlayoutListener) -> None:
        """Pass everything on to this one, too, from now on."""
        self._all.append(listener)

    def remove(self, listener: PlayoutListener) -> None:
        """Pass nothing more on to this one."""
        self._all.remove(listener)

    def play(self, chunk: AudioChunk, at: float, text: str = "", turn: int = 0) -> None:
        """Pass on that audio plays."""
        self._each(lambda one: one.play(chunk, at, text, turn))

    def hold(self, at: float) -> None:
        """Pass on that the client holds its audio."""
        self._each(lambda one: one.hold(at))

    def release(self, at: float) -> None:
        """Pass on that the client plays the audio that it held."""
        self._each(lambda one: one.release(at))

    def cut(self, at: float) -> None:
        """Pass on that the audio stops."""
        self._each(lambda one: one.cut(at))

    def truncate(self, turn: int, seconds: float) -> None:
        """Pass on how much of a reply was played."""
        self._each(lambda one: one.truncate(turn, seconds))

    def play_again(self, seconds: float, at: float) -> None:
        """Pass on that audio plays again."""
        self._each(lambda one: one.play_again(seconds, at))

    def _each(self, step: Callable[[PlayoutListener], None]) -> None:
        for one in list(self._all):  # one of them may leave in its step
            step(one)
