"""Patience with the ends of turns, which grows when the agent cuts the user off."""

from __future__ import annotations

from rejoinder.pipeline.audio.chunk import in_samples

TOO_SOON_MS = 1_000
"""An interruption within this time after the end of a turn was decided means that the agent cut the user
off."""
GOES_ON_MS = 700
"""Speech that begins within this time after the end of a turn was decided goes on with the turn. No listener
says "mm-hm" to the first half second of an answer."""
GROWTH = 3.0
"""Factor on the patience each time the agent has cut the user off."""
MOST_PATIENCE = 64.0
"""Limit of the patience after such a factor."""
CUT_OFF_UNSURE_MS = 900.0
"""Least ``unsure_wait_ms`` for a user whom the agent has cut off; most pauses within a turn are shorter."""
HEARD_OUT_TURNS = 3
"""Turns without a cut-off after which the extra patience resets."""


class Patience:
    """How many times as likely as more speech the end of a turn must be. Positions are samples at 16 kHz.

    extra: the patience after a cut-off, 0 without one. It applies if the session's own patience is lower.
    """

    def __init__(self) -> None:
        self.extra = 0.0
        self._answered_at = -in_samples(TOO_SOON_MS)  # so the first sound of a call follows no turn
        self._turns = 0

    def turn_answered(self, at: int) -> None:
        """Record that the agent answers a turn whose end it decided at sample ``at``."""
        self._answered_at = at
        self._turns += 1
        if self._turns > HEARD_OUT_TURNS:
            self.extra, self._turns = 0.0, 0

    def agent_interrupted(self, onset: int, patience: float) -> None:
        """Raise the patience if speech from sample ``onset`` shows that the agent cut the user off.

        patience: the session's own.
        """
        if onset - self._answered_at < in_samples(TOO_SOON_MS):
            self.extra = min(max(self.extra, patience) * GROWTH, MOST_PATIENCE)
            self._turns = 0

    def goes_on(self, onset: int) -> bool:
        """Return whether speech from sample ``onset`` goes on with a turn whose end was decided too soon."""
        return onset - self._answered_at < in_samples(GOES_ON_MS)

    def applied(self, patience: float, unsure_ms: float) -> tuple[float, float]:
        """Return the patience and the ``unsure_wait_ms`` to use now. Both arguments: the session's own."""
        if self.extra > patience:
            return self.extra, max(unsure_ms, CUT_OFF_UNSURE_MS)
        return patience, unsure_ms
