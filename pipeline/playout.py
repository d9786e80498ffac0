"""How far a reply has been heard, by the paced clock, and which words that makes."""

from __future__ import annotations

from dataclasses import dataclass

LEAD_SECONDS = 0.2
"""Audio is sent at most this far ahead of real time: what was sent cannot be called back on every wire."""

ROUNDING_SECONDS = 0.001
"""So little before its end a clause has been heard: the lengths of slices do not add up exactly."""


@dataclass(slots=True)
class _Clause:
    text: str
    start: float
    end: float


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
        self._clauses.append(_Clause(text, self.seconds, self.seconds))

    def sent(self, seconds: float, now: float, made: float = 0.0) -> float:
        """Note that audio was sent; return how long to wait before sending more.

        made: seconds that this clause will be long, as known by now: its words are spread over them.
        """
        now = self._clock(now)
        self._runs_dry = max(self._runs_dry, now) + seconds
        self.seconds += seconds
        if self._clauses:
            clause = self._clauses[-1]
            clause.end = max(self.seconds, clause.start + made)
        return max(0.0, self._runs_dry - now - LEAD_SECONDS)

    def left(self, now: float) -> float:
        """Return the seconds of audio that were sent and not yet played."""
        return max(0.0, self._runs_dry - self._clock(now))

    def pause(self, now: float) -> None:
        """Note that the client was told to pause."""
        if self.holds and self._stopped is None:
            self._stopped = now

    def resume(self, now: float) -> None:
        """Note that the client was told to go on: what it held is heard from now on."""
        left, self._stopped = self.left(now), None
        self._runs_dry = now + left

    def _clock(self, now: float) -> float:
        return now if self._stopped is None else self._stopped

    def played(self, now: float) -> float:
        """Return the seconds of the reply that have been played."""
        return self.seconds - self.left(now)

    def text(self, played: float) -> str:
        """Return the text heard in the first ``played`` seconds.

        Inside a clause the words are spread over its audio by their length in characters.
        """
        played = min(played, self.seconds)
        return " ".join(text for clause in self._clauses if (text := _heard(clause, played)))


def _heard(clause: _Clause, played: float) -> str:
    if played > clause.end - ROUNDING_SECONDS:
        return clause.text if clause.end > clause.start else ""
    if played <= clause.start:
        return ""
    reached = (played - clause.start) / (clause.end - clause.start) * len(clause.text)
    words, position = [], 0
    for word in clause.text.split():
        position += len(word) + 1
        if position - 1 > reached:
            break
        words.append(word)
    return " ".join(words)
