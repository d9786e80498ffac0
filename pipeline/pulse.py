"""The signs of life of one call, by which it is judged from outside."""

from __future__ import annotations

from collections.abc import Callable

from rejoinder.pipeline.audio.chunk import RATE
from rejoinder.pipeline.events import (
    EndOfTurn,
    Event,
    NothingSaid,
    ReplyDone,
    ReplyText,
    SpeechStarted,
)
from rejoinder.pipeline.options import Options
from rejoinder.pipeline.session import Session
from rejoinder.pipeline.turns.floor import Floor

Clock = Callable[[], float]
"""A steady clock, in seconds."""
ENDLESS_SHARE = 0.95
"""A turn of at least this share of the longest one was ended for its length."""


class Pulse:
    """When one call last showed that it works. It takes no part in the call. Times are of ``clock``.

    endless: turns in a row that were ended for their length, while the user spoke. taking_since: when the
    session was given what it has not taken yet, None if it waits for more; the call's reader sets it.
    owed_since: since when the session has owed something without a sign of life, None if it owes nothing; the
    call's writer clears it at each chunk of audio. writing_since: since when the writer is at one event,
    None if it waits for the next one. All three are attributes, not methods, for their cost.
    """

    def __init__(self, clock: Clock) -> None:
        self.endless = 0
        self.taking_since: float | None = None
        self.owed_since: float | None = None
        self.writing_since: float | None = None
        self._clock = clock
        self._session: Session | None = None
        self._began = clock()
        self._written = 0
        self._turn: int | None = None  # the sample at which the user's turn began

    @property
    def lasted(self) -> float:
        """Seconds since the call began."""
        return self._clock() - self._began

    @property
    def longest(self) -> float:
        """The longest duration of the call, in seconds, 0.0 for any."""
        return self._session.options.max_call_s if self._session else 0.0

    def begin(self, session: Session) -> None:
        """Take the session of the call."""
        self._session = session

    def take(self, event: Event) -> None:
        """Record an event of the session."""
        match event:
            case SpeechStarted(at):
                self._turn = at
            case EndOfTurn(_, at) | NothingSaid(at):
                self._end_turn(at)
            case ReplyText() | ReplyDone():
                self.owed_since = None  # until the next look

    def look(self) -> None:
        """Ask the session whether it owes something. Call this again and again."""
        if self._session is None:
            return
        written = self._session.written
        if not self._session.owes or written != self._written:
            self.owed_since = None
        elif self.owed_since is None:
            self.owed_since = self._clock()
        self._written = written

    @property
    def stuck(self) -> float:
        """Seconds without a sign of life while one is due: from the session, the reader or the writer."""
        all_since = (self.taking_since, self.owed_since, self.writing_since)
        since = [time for time in all_since if time is not None]
        return self._clock() - min(since) if since else 0.0

    @property
    def due(self) -> str:
        """What has not come for the time of ``stuck``, and from where, in words; "" for nothing."""
        waits = (
            (
                self.taking_since,
                "the caller's audio is not taken, by voice activity detection or the recogniser",
            ),
            (self.writing_since, "the task that sends to the client does not return"),
            (self.owed_since, self._owed),
        )
        since = [(time, what) for time, what in waits if time is not None]
        return min(since)[1] if since else ""

    @property
    def _owed(self) -> str:
        if self._session is None:
            return ""
        if self._session.floor.floor is Floor.PAUSE:
            return "the words of a pause are due, from the recogniser"
        if not self._session.written:
            return "a reply is due, of which the language model has written nothing"
        return "the rest of a reply is due, from the language model or the voice"

    def _end_turn(self, at: int) -> None:
        options = self._session.options if self._session else Options()
        begin, self._turn = self._turn, None  # None: the client ends the turns, or there was none
        longest = options.endpointing.max_turn_ms / 1000.0
        is_endless = begin is not None and (at - begin) / RATE >= ENDLESS_SHARE * longest
        self.endless = self.endless + 1 if is_endless and options.create_response else 0
