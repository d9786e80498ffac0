"""The user's turn while it lasts."""

from __future__ import annotations

from dataclasses import dataclass

from rejoinder.pipeline.turns.overlap import Overlap
from rejoinder.pipeline.turns.pause import Pause


@dataclass(slots=True)
class UserTurn:
    """A turn of the user, or a sound over the agent that may become one. Positions are samples at 16 kHz.

    start: first sample that may belong to it.
    onset: sample at which its speech begins.
    voiced_until: end of its last voiced sample.
    pause: the pause that it is in, None while the user speaks.
    overlap: the sound over the agent, None once it is a turn.
    cut_in: whether it stopped the agent.
    """

    start: int
    onset: int
    voiced_until: int
    pause: Pause | None = None
    overlap: Overlap | None = None
    cut_in: bool = False

    @property
    def holds_agent(self) -> bool:
        """Whether the agent waits until it is known what this sound is."""
        return self.overlap is not None and not self.overlap.resumed

    def resume(self, at: int) -> None:
        """End the pause: the user speaks again until sample ``at``."""
        self.pause = None
        self.voiced_until = at
