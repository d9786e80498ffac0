"""Watches whether a caller hears all of the announcement."""

from __future__ import annotations

from rejoinder.pipeline import AudioChunk

UNHEARD_SECONDS = 0.1
"""A cut this close to the end of the announcement leaves all of its words, in seconds."""


class Announcement:
    """The announcement while it plays, as a ``PlayoutListener``.

    turn: number of the reply that speaks it. whole: whether nothing of it was cut off so far. A client may
    still report afterwards that it has played less.
    """

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self.whole = True
        self._seconds = 0.0
        self._ends = float("-inf")

    @property
    def heard(self) -> bool:
        """Whether something of it was played, and nothing was cut off."""
        return self.whole and self._seconds > 0.0

    def play(self, chunk: AudioChunk, at: float, text: str = "", turn: int = 0) -> None:
        """Take audio of the agent that plays at time ``at``."""
        if turn == self.turn:
            self._seconds += chunk.seconds
            self._ends = at + chunk.seconds

    def hold(self, at: float) -> None:
        """Do nothing: the client plays the rest later."""

    def release(self, at: float) -> None:
        """Do nothing."""

    def cut(self, at: float) -> None:
        """Take that nothing plays from ``at`` on."""
        self.whole = self.whole and at > self._ends - UNHEARD_SECONDS

    def truncate(self, turn: int, seconds: float) -> None:
        """Take that the client played only ``seconds`` of reply ``turn``."""
        if turn == self.turn:
            self.whole = self.whole and seconds > self._seconds - UNHEARD_SECONDS

    def play_again(self, seconds: float, at: float) -> None:
        """Do nothing: what the client has lost was cut before."""
