"""The play-out position of a reply, and the words heard up to it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rejoinder.pipeline.audio.chunk import Words

LEAD_SECONDS = 0.2
"""How far audio is sent ahead of real time at most: not every wire can recall sent audio."""

ROUNDING_SECONDS = 0.001
"""A word counts as heard this long before its end, because the lengths of slices are rounded."""


@dataclass(slots=True)
class SpokenClause:
    """A clause whose audio has begun: its words, its first and last second, and the times of its words."""

    text: str
    start: float
    end: float = math.inf
    words: Words = ()


class Playout:
    """The play-out clock of one reply. Times are ``loop.time()``; times and durations are in seconds.

    seconds: duration of the audio sent so far.
    holds: whether the client stops its playback while the reply is paused; otherwise it plays what it has.
    """

    def __init__(self, holds: bool = False) -> None:
        self.seconds = 0.0
        self.holds = holds
        self._stopped: float | None = None
        self._clauses: list[SpokenClause] = []
        self._runs_dry = 0.0

    @classmethod
    def of(cls, clauses: Iterable[SpokenClause], seconds: float) -> Playout:
        """Return a clock that has sent these clauses. seconds: of their audio."""
        playout = cls()
        playout._clauses, playout.seconds = list(clauses), seconds
        return playout

    @property
    def clauses(self) -> Sequence[SpokenClause]:
        """The clauses whose audio has begun."""
        return self._clauses

    def begin(self, text: str) -> None:
        """Record that the next audio speaks the clause ``text``."""
        self.end()
        self._clauses.append(SpokenClause(text, self.seconds))

    def end(self) -> None:
        """Record that all audio of the current clause was sent: once it has played, all words are heard."""
        if self._clauses:
            self._clauses[-1].end = min(self._clauses[-1].end, self.seconds)

    def sent(self, seconds: float, now: float, words: Words = ()) -> float:
        """Record that audio was sent; return the seconds to wait before sending more.

        words: the times of the words in this clause, as far as they are known.
        """
        now = self._clock(now)
        self._runs_dry = max(self._runs_dry, now) + seconds
        self.seconds += seconds
        if self._clauses:
            self._clauses[-1].words = words
        return max(0.0, self._runs_dry - now - LEAD_SECONDS)

    def left(self, now: float) -> float:
        """Return the seconds of audio that were sent and have not been played."""
        return max(0.0, self._runs_dry - self._clock(now))

    def pause(self, now: float) -> None:
        """Record that the client was asked to pause."""
        if self.holds and self._stopped is None:
            self._stopped = now

    def stop(self, since: float) -> None:
        """Record that nothing has been heard since time ``since``, because the client is disconnected."""
        self._stopped = since if self._stopped is None else min(since, self._stopped)

    def sent_again(self, seconds: float, at: float) -> None:
        """Record that a returned client plays the last ``seconds`` of the sent audio again from ``at`` on."""
        self._stopped = None
        self._runs_dry = at + min(seconds, self.seconds)

    def resume(self, now: float) -> None:
        """Record that the client was asked to resume; it plays the audio that it held from now on."""
        left, self._stopped = self.left(now), None
        self._runs_dry = now + left

    def _clock(self, now: float) -> float:
        return now if self._stopped is None else self._stopped

    def played(self, now: float) -> float:
        """Return the seconds of the reply that have been played."""
        return max(0.0, self.seconds - self.left(now))

    def text(self, played: float) -> str:
        """Return the text heard in the first ``played`` seconds, up to the last whole word."""
        played = min(played, self.seconds)
        return " ".join(text for clause in self._clauses if (text := _heard(clause, played)))


def spread(text: str, seconds: float) -> Words:
    """Estimate the times of the words in a clause of ``seconds`` from their length in characters."""
    return tuple((seconds * (word.end() / len(text)), word.end()) for word in re.finditer(r"\S+", text))


def _heard(clause: SpokenClause, played: float) -> str:
    if played <= clause.start:
        return ""
    if played > clause.end - ROUNDING_SECONDS:
        return clause.text
    since = played - clause.start + ROUNDING_SECONDS
    return clause.text[
        : max((characters for seconds, characters in clause.words if seconds <= since), default=0)
    ]
