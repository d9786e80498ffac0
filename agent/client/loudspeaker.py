"""Plays the agent's audio on this machine's speaker, and reports how much of it was played."""

from __future__ import annotations

from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.client.converter import Converter
from rejoinder.agent.client.playback import Playback
from rejoinder.pipeline import AudioChunk


class Loudspeaker:
    """Plays the items of a call one after the other. rate: of the playback, in hertz."""

    def __init__(self, playback: Playback, rate: int) -> None:
        self._playback = playback
        self._rate = rate
        self._converter = Converter(rate)
        self._place = 0
        self._put = 0
        self._begun: list[tuple[str, int]] = []
        self._cut: frozenset[str] = frozenset()

    def play(self, item: str, pcm: bytes) -> None:
        """Queue audio of an item, 16-bit mono at 24 kHz; ignore an item that was cut."""
        if item in self._cut:
            return
        if not self._begun or self._begun[-1][0] != item:
            self.finish()
            self._begun = [*self._unplayed(self._playback.waiting), (item, self._put)]
        chunk = AudioChunk(pcm, CLIENT_RATE, self._place)
        self._place = chunk.end
        self._add(self._converter.convert(chunk))

    def finish(self) -> None:
        """End an item, and queue the audio that the resampler still holds."""
        self._place = 0
        self._add(self._converter.finish())

    def position(self) -> tuple[str, int] | None:
        """Return the item that was played last and how many milliseconds of it, None before the first one."""
        played = self._put - self._playback.waiting
        begun = [(item, start) for item, start in self._begun if start < played]
        if not begun:
            return None
        item, start = begun[-1]
        return item, (played - start) * 1000 // (2 * self._rate)

    def cut(self) -> list[tuple[str, int]]:
        """Drop the queued audio, and what still arrives of its items.

        Return the items that this cuts, with the milliseconds that were played. Audio that the device has
        already taken will sound, so it counts as played.
        """
        lost = self.clear()
        self._cut = frozenset(item for item, _ in lost)
        return lost

    def clear(self) -> list[tuple[str, int]]:
        """Drop the queued audio: the server sends its items again. Return as ``cut``."""
        self._place = 0
        self._converter.finish()
        waiting = self._playback.clear()
        played = self._put - waiting
        # Rounded down: a server refuses to truncate an item after its end.
        lost = [
            (item, max(0, played - start) * 1000 // (2 * self._rate))
            for item, start in self._unplayed(waiting)
        ]
        self._put, self._begun = 0, []
        return lost

    def _unplayed(self, waiting: int) -> list[tuple[str, int]]:
        """Return the items that are not fully played, with the byte at which each begins."""
        ends = [*(start for _, start in self._begun[1:]), self._put]
        return [one for one, end in zip(self._begun, ends, strict=False) if end > self._put - waiting]

    def _add(self, pcm: bytes) -> None:
        self._put += len(pcm)
        self._playback.put(pcm)
