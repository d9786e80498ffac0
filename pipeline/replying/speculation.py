"""Counts the replies that start before the end of a turn: kept, dropped, and the tokens wasted."""

from __future__ import annotations


class Speculation:
    """The guesses of one session: replies that start before the user's turn is surely over.

    kept: guesses that became the reply. dropped: guesses that were cancelled.
    tokens_wasted: pieces that the language model streamed for dropped guesses; most models stream tokens.
    """

    def __init__(self) -> None:
        self.kept = 0
        self.dropped = 0
        self.tokens_wasted = 0
        self._in_turn = 0
        self._reported = (0, 0, 0)

    def may_start(self, limit: int) -> bool:
        """Return whether another guess may start in this turn; if so, count it."""
        if self._in_turn >= limit:
            return False
        self._in_turn += 1
        return True

    def begin_turn(self) -> None:
        """Record that the user begins to speak."""
        self._in_turn = 0

    def drop(self, tokens: int) -> None:
        """Record that a guess was dropped after this many tokens."""
        self.dropped += 1
        self.tokens_wasted += tokens

    def commit(self, guess: bool) -> dict[str, float]:
        """Record a committed reply; return the counts that are new since the last one.

        guess: whether it started as a guess.
        """
        self.kept += guess
        self._in_turn = 0
        now = (self.kept, self.dropped, self.tokens_wasted)
        new = [count - before for count, before in zip(now, self._reported, strict=True)]
        self._reported = now
        return dict(zip(("guesses_kept", "guesses_dropped", "tokens_wasted"), map(float, new), strict=True))
