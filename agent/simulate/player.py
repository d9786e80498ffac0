"""A simulated microphone and loudspeaker of a client, without I/O.

Both count samples from the start of the call, so that spoken and played audio share one time axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.pipeline.audio.chunk import Samples, to_pcm
from rejoinder.pipeline.audio.loudness import AUDIBLE

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


@dataclass(frozen=True, slots=True)
class Cut:
    """The result of a flush: ``item`` stopped at sample ``at`` of the call, after ``played_ms`` of its audio.

    unheard: number of samples that had arrived and were dropped.
    """

    item: str
    at: int
    played_ms: int
    unheard: int


@dataclass(slots=True)
class _Piece:
    item: str
    start: int
    audio: Samples

    @property
    def end(self) -> int:
        return self.start + len(self.audio)


class Player:
    """The caller's loudspeaker: audio plays when it arrives, or after the queued audio.

    It adds no buffer, so it measures only the agent and the network.
    """

    def __init__(self) -> None:
        self.end = 0
        """Sample of the call at which the loudspeaker runs dry."""
        self._pieces: list[_Piece] = []
        self._cut: set[str] = set()
        self._held: list[_Piece] | None = None
        self._held_at = 0

    def play(self, item: str, audio: Samples, now: int) -> int:
        """Queue audio of an item that arrives at sample ``now``. Return the sample at which it plays.

        audio: float32 of shape (n,) at ``CLIENT_RATE``. Drops further audio of an item that was cut, as
        standard clients do. While the player holds, audio is queued behind the held audio.
        """
        start = max(self.end, now)
        if self._held is not None:
            self._held += [_Piece(item, start, audio)] if item not in self._cut else []
            return start
        if item not in self._cut and len(audio):
            self._pieces.append(_Piece(item, start, audio))
            self.end = start + len(audio)
        return start

    def hold(self, now: int) -> None:
        """Stop at sample ``now``, and keep the audio that has not been played."""
        if self._held is None:
            self._held, self._held_at = self._take_back(now), now

    def release(self, now: int) -> None:
        """Continue at the sample at which ``hold`` stopped."""
        held, self._held = self._held or [], None
        for piece in held:
            self.play(piece.item, piece.audio, now)

    def flush(self, now: int) -> Cut | None:
        """Drop the audio that is held or not played at sample ``now``. Returns None if there is none."""
        at = now if self._held is None else self._held_at
        rest, self._held = self._take_back(now) if self._held is None else self._held, None
        if not rest:
            return None
        item = rest[0].item
        self._cut.update(piece.item for piece in rest)
        unheard = sum(len(piece.audio) for piece in rest)
        # Rounded down: a server refuses to truncate an item after its end.
        return Cut(item, at, self.played(item, at) * 1000 // CLIENT_RATE, unheard)

    def _take_back(self, now: int) -> list[_Piece]:
        rest = [piece for piece in self._pieces if piece.end > now]
        if not rest:
            return []
        taken = [_Piece(piece.item, now, piece.audio[max(0, now - piece.start) :]) for piece in rest]
        for piece in rest:
            piece.audio = piece.audio[: max(0, now - piece.start)]
        self._pieces = [piece for piece in self._pieces if len(piece.audio)]
        self.end = now
        return taken

    def played(self, item: str, now: int) -> int:
        """Return the number of samples of an item that have been played at sample ``now``."""
        mine = (piece for piece in self._pieces if piece.item == item)
        return sum(min(piece.end, now) - piece.start for piece in mine if piece.start < now)

    def received(self, item: str) -> int:
        """Return the number of samples of an item that were or will be played."""
        return sum(len(piece.audio) for piece in self._pieces if piece.item == item)

    def playing(self, now: int) -> bool:
        """Return whether audio plays at sample ``now``."""
        return self.end > now

    def first_audible(self, item: str) -> int | None:
        """Return the sample of the call at which an item is first audible, None if it is silent so far."""
        for piece in self._pieces:
            if piece.item == item and (loud := np.flatnonzero(np.abs(piece.audio) > AUDIBLE)).size:
                return piece.start + int(loud[0])
        return None

    def last_audible(self, item: str) -> int | None:
        """Return the sample after the last audible sample of an item, None if it is silent so far."""
        for piece in reversed(self._pieces):
            if piece.item == item and (loud := np.flatnonzero(np.abs(piece.audio) > AUDIBLE)).size:
                return piece.start + int(loud[-1]) + 1
        return None

    def last_sample(self, item: str) -> int | None:
        """Return the sample of the call after the last one of an item."""
        return max((piece.end for piece in self._pieces if piece.item == item), default=None)

    def spans(self) -> list[tuple[int, int]]:
        """Return when audio plays: the first sample and the one after the last of each span, in order."""
        spans: list[tuple[int, int]] = []
        for piece in self._pieces:
            joined = spans.pop()[0] if spans and spans[-1][1] == piece.start else piece.start
            spans.append((joined, piece.end))
        return spans

    def sound(self, begin: int, end: int) -> Samples:
        """Return the audio that played between two samples of the call, float32 of shape (end - begin,)."""
        sound = np.zeros(end - begin, np.float32)
        for piece in reversed(self._pieces):
            if piece.end <= begin:
                break
            part = piece.audio[max(0, begin - piece.start) : max(0, end - piece.start)]
            first = max(0, piece.start - begin)
            sound[first : first + len(part)] = part
        return sound

    def track(self, length: int) -> Samples:
        """Return the first ``length`` samples that played, float32 of shape (length,)."""
        track = np.zeros(length, np.float32)
        for piece in self._pieces:
            part = piece.audio[: max(0, length - piece.start)]
            track[piece.start : piece.start + len(part)] = part
        return track
