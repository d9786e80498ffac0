"""How far a reply has been heard, by the paced clock, and which words that makes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from rejoinder.pipeline.audio.chunk import Words

LEAD_SECONDS = 0.2
"""Audio is sent at most this far ahead of real time: what was sent cannot be called back on every wire."""

ROUNDING_SECONDS = 0.001
"""So little before its end a word has been heard: the lengths of slices do not add up exactly."""


@dataclass(slots=True)
class _Clause:
    text: str
    start: float
    end: float = math.inf
    words: Words = ()


class Playout:
    """The play-out clock of one reply. Times are ``loop.time()`` and durations, both in seconds.

    seconds: length of what was sent. holds: whether the client holds what it has while the reply is paused;
        one that does not plays it to its end.
    """

    def __init__(self, holds: bool = False) -> None:
        self.seconds = 0.0
        self.holds = holds
        self._stopped: float | None = None
        self._clauses: list[_Clause] = []
        self._runs_dry = 0.0

    def begin(self, text: str) -> None:
        """Note that the audio that follows speaks ``text``."""
        self.end()
        self._clauses.append(_Clause(text, self.seconds))

    def end(self) -> None:
        """Note that all audio of the clause was sent: after it all of its words have been heard."""
        if self._clauses:
            self._clauses[-1].end = min(self._clauses[-1].end, self.seconds)

    def sent(self, seconds: float, now: float, words: Words = ()) -> float:
        """Note that audio was sent; return how long to wait before sending more.

        words: when the words of this clause are spoken, as known by now.
        """
        now = self._clock(now)
        self._runs_dry = max(self._runs_dry, now) + seconds
        self.seconds += seconds
        if self._clauses:
            self._clauses[-1].words = words
        return max(0.0, self._runs_dry - now - LEAD_SECONDS)

    def left(self, now: float) -> float:
        """Return the seconds of audio that were sent and not yet played."""
        return max(0.0, self._runs_dry - self._clock(now))

    def pause(self, now: float) -> None:
        """Note that the client was told to pause."""
        if self.holds and self._stopped is None:
            self._stopped = now

    def stop(self, since: float) -> None:
        """Note that nothing has been heard ``since`` then, because the client is gone."""
        self._stopped = since if self._stopped is None else min(since, self._stopped)

    def sent_again(self, seconds: float, at: float) -> None:
        """Note that the client is back, and hears the last ``seconds`` of what was sent from ``at`` on."""
        self._stopped = None
        self._runs_dry = at + min(seconds, self.seconds)

    def resume(self, now: float) -> None:
        """Note that the client was told to go on: what it held is heard from now on."""
        left, self._stopped = self.left(now), None
        self._runs_dry = now + left

    def _clock(self, now: float) -> float:
        return now if self._stopped is None else self._stopped

    def played(self, now: float) -> float:
        """Return the seconds of the reply that have been played."""
        return max(0.0, self.seconds - self.left(now))

    def text(self, played: float) -> str:
        """Return the text heard in the first ``played`` seconds, as written, up to its last whole word."""
        played = min(played, self.seconds)
        return " ".join(text for clause in self._clauses if (text := _heard(clause, played)))


def spread(text: str, seconds: float) -> Words:
    """Spread the words of a clause over its audio by their length in characters."""
    return tuple((seconds * (word.end() / len(text)), word.end()) for word in re.finditer(r"\S+", text))


def _heard(clause: _Clause, played: float) -> str:
    if played <= clause.start:
        return ""
    if played > clause.end - ROUNDING_SECONDS:
        return clause.text
    since = played - clause.start + ROUNDING_SECONDS
    return clause.text[
        : max((characters for seconds, characters in clause.words if seconds <= since), default=0)
    ]
