"""What guesses at the end of a turn are worth: how many were kept, and the tokens that the others cost."""

from __future__ import annotations


class Speculation:
    """The guesses of one session. A guess is a reply that was started before the turn was surely over.

    kept, dropped: how many became the answer, and how many did not. tokens_wasted: what the language model
    had said in those that did not, in the pieces that it streams, which are tokens with most models.
    """

    def __init__(self) -> None:
        self.kept = 0
        self.dropped = 0
        self.tokens_wasted = 0
        self._in_turn = 0
        self._told = (0, 0, 0)

    def may_start(self, limit: int) -> bool:
        """Tell whether another guess may be made in this turn, and count it if so."""
        if self._in_turn >= limit:
            return False
        self._in_turn += 1
        return True

    def begin_turn(self) -> None:
        """Note that the user begins to speak."""
        self._in_turn = 0

    def drop(self, tokens: int) -> None:
        """Note that a guess was thrown away."""
        self.dropped += 1
        self.tokens_wasted += tokens

    def commit(self, guess: bool) -> dict[str, float]:
        """Note that a reply is the answer, once a guess or not; return what is new since the last one."""
        self.kept += guess
        self._in_turn = 0
        now = (self.kept, self.dropped, self.tokens_wasted)
        new = [count - before for count, before in zip(now, self._told, strict=True)]
        self._told = now
        return dict(zip(("guesses_kept", "guesses_dropped", "tokens_wasted"), map(float, new), strict=True))
