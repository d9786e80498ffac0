"""Measures the longest silence that a caller hears while an answer is owed."""

from __future__ import annotations


class Silences:
    """The silences of one call. It has no clock: times are arguments, in seconds.

    A silence begins with the last sound of the caller's turn, or with the end of the agent's audio while the
    answer is not complete: a tool runs, or the voice waits for words. It ends with the agent's next audio.
    Fillers end it, too. What the caller hears after a complete answer is not counted.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._before: float | None = None
        self._plays_until = 0.0
        self._longest = 0.0

    def turn_ended(self, silent_from: float) -> None:
        """Record the end of the caller's turn, whose last sound was at ``silent_from``."""
        self._since, self._longest = silent_from, 0.0

    def user_spoke(self) -> None:
        """Record that the caller speaks: no answer is owed."""
        self._before, self._since = self._since, None

    def nothing_said(self) -> None:
        """Record that it was no speech: the silence from before goes on."""
        self._since, self._before = self._before, None

    def heard(self, now: float, seconds: float) -> None:
        """Record audio of the agent that is sent at ``now``."""
        begin = max(now, self._plays_until)
        self._plays_until = begin + seconds
        if self._since is not None:
            self._longest = max(self._longest, begin - self._since)
            self._since = self._plays_until

    def answered(self) -> float:
        """Record that the answer is complete; return its longest silence."""
        longest, self._longest, self._since = self._longest, 0.0, None
        return longest

    @property
    def longest(self) -> float:
        """The longest silence of the answer so far."""
        return self._longest
