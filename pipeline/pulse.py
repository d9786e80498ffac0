"""The signs of life of one call, by which it is judged from outside."""

from __future__ import annotations

import time
from collections.abc import Callable

from rejoinder.pipeline.audio.chunk import RATE
from rejoinder.pipeline.events import EndOfTurn, Event, NothingSaid, SpeechStarted
from rejoinder.pipeline.session import Session

Clock = Callable[[], float]
"""A steady clock, in seconds."""
ENDLESS_SHARE = 0.95
"""A turn of at least this share of the longest one was ended for its length."""


class Pulse:
    """When one call last showed that it works. It takes no part in the call. Times are of ``clock``.

    endless: turns in a row that were ended for their length, while the user spoke.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.endless = 0
        self._clock = clock
        self._session: Session | None = None
        self._began = self._last = clock()
        self._hearing: float | None = None
        self._away = False
        self._turn = 0  # the sample at which the user's turn began

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
        self._session, self._last = session, self._clock()

    def hear(self) -> None:
        """Record that the session is given audio, until ``heard``."""
        self._hearing = self._clock()

    def heard(self) -> None:
        """Record that it has taken the audio."""
        self._hearing = None

    def take(self, event: Event) -> None:
        """Record an event of the session."""
        self._last = self._clock()
        match event:
            case SpeechStarted(at):
                self._turn = at
            case EndOfTurn(_, at) | NothingSaid(at):
                is_endless = (at - self._turn) / RATE >= ENDLESS_SHARE * self._longest_turn
                self.endless = self.endless + 1 if is_endless else 0
                self._turn = at  # endless speech goes on without another start

    @property
    def _longest_turn(self) -> float:
        return self._session.options.endpointing.max_turn_ms / 1000.0 if self._session else 0.0

    def leave(self) -> None:
        """Record that the client is away: nothing plays until it is back."""
        self._away = True

    def come_back(self) -> None:
        """Record that the client is back."""
        self._away, self._last = False, self._clock()

    @property
    def stuck(self) -> float:
        """Seconds for which the session has taken no audio, or has owed an answer and shown no sign of it."""
        now = self._clock()
        waits = [] if self._hearing is None else [now - self._hearing]
        if self._session is not None and self._session.answering and not self._away:
            waits.append(now - self._last)
        return max(waits, default=0.0)
