"""The longest silence on the caller's side of a call, while the agent owes an answer."""

from __future__ import annotations

from collections import deque

from rejoinder.pipeline import (
    RATE,
    AudioChunk,
    EndOfTurn,
    Event,
    NothingSaid,
    OverlapEnded,
    OverlapStarted,
    ReplyCalled,
    ReplyDone,
    ReplyStarted,
    SpeechStarted,
)

MAX_CHUNKS = 4096
"""Most chunks of audio between two other events. A reply has an event for each clause."""


class Silence:
    """Measures what the caller waits: from the end of the own words, or of agent audio, to the next audio.

    An answer is owed from the end of the caller's turn, or the start of a reply, until a reply ends that has
    words and calls no tool. Fillers end a silence and no debt. A sound of the caller ends both. Out-of-band
    replies count for nothing.

    It has no clock: times are arguments, in seconds.
    audio: the agent's audio since the last event, each with its time. Append to it instead of calling
    ``take``, which would cost each chunk several calls; ``take`` and ``hang_up`` take it into account.
    """

    def __init__(self) -> None:
        self._longest = 0.0
        self.audio: deque[tuple[float, AudioChunk]] = deque(maxlen=MAX_CHUNKS)
        self._in_turn = 0.0
        self._heard_until = 0.0
        self._silent_from: float | None = None
        self._owed = self._calling = False
        self._called: int | None = None
        self._beside: set[int] = set()

    def take(self, happened: Event, now: float, received: int) -> None:
        """Take an event of the session at time ``now``. received: the caller's samples so far (16 kHz)."""
        self._take_audio()
        match happened:
            case EndOfTurn(_, at):
                self._begin(now - max(0, received - at) / RATE)
            case ReplyStarted(turn, out_of_band=beside):
                if beside:
                    self._beside.add(turn)
                elif not self._owed:
                    self._begin(now)
            case ReplyDone(turn) if turn in self._beside:
                self._beside.discard(turn)
            case ReplyCalled(turn) if turn in self._beside:
                pass
            case ReplyCalled(turn):
                self._calling, self._called = True, turn
            case ReplyDone(turn, status, heard):
                if heard and turn != self._called:
                    self._calling = False
                if status == "cancelled":
                    self._heard_until = min(self._heard_until, now)
                if not self._calling and (heard or status in ("failed", "cancelled")):
                    self._owed, self._silent_from = False, None
            case SpeechStarted():
                self._end(now)
                self._heard_until = min(self._heard_until, now)
                self._owed = False
            case OverlapStarted():
                self._end(now)
            case OverlapEnded() if self._owed:
                self._silent_from = max(now, self._heard_until)
            case NothingSaid() if self._calling:
                self._begin(now)

    @property
    def longest(self) -> float:
        """The longest silence so far, in seconds."""
        self._take_audio()
        return self._longest

    def take_turn(self) -> float:
        """Return the longest silence since the last call of this method, in seconds."""
        self._take_audio()
        longest, self._in_turn = self._in_turn, 0.0
        return longest

    def hang_up(self, now: float) -> None:
        """Take the end of the call."""
        self._take_audio()
        self._end(now)

    def _take_audio(self) -> None:
        while self.audio:
            now, chunk = self.audio.popleft()
            self._end(now)
            self._heard_until = max(self._heard_until, now) + chunk.seconds
            if self._owed:
                self._silent_from = self._heard_until

    def _begin(self, at: float) -> None:
        self._owed, self._silent_from = True, max(at, self._heard_until)

    def _end(self, now: float) -> None:
        since, self._silent_from = self._silent_from, None
        if since is not None and now > since:
            self._in_turn = max(self._in_turn, now - since)
            self._longest = max(self._longest, now - since)
