"""Decides when to begin a message for an answering machine: after its beep, or in silence without one.

It has no clock and does no I/O; positions are samples at 16 kHz.
"""

from __future__ import annotations

from rejoinder.agent.app.answering.beep import Beep
from rejoinder.pipeline import RATE

AFTER_BEEP_S = 0.2
"""Silence between a beep and the message, in seconds: a second beep may follow, and recording begins late."""
NO_BEEP_S = 3.5
"""Silence after a greeting that has no beep. Beeps come up to about 3 s after the last word."""
SLACK_S = 0.3
"""How much later than a beep speech may end that was the beep, taken for speech, in seconds."""
RECENT_S = 6.0
"""Most age of a beep that came before the message was asked for, if only silence followed, in seconds."""


class MessageStart:
    """When to begin one message. now: the samples received when it was asked for.

    by_beep: whether the message began because of a beep. began: whether it is time, or was.
    """

    def __init__(self, now: int, beep: Beep | None = None, silent_since: int | None = None) -> None:
        recent = beep is not None and now - beep.end < RECENT_S * RATE
        after = beep is not None and silent_since is not None and silent_since <= beep.end + SLACK_S * RATE
        self._beep = beep if recent and after else None
        self._silent_since = now if silent_since is None else silent_since
        self._speaking = silent_since is None
        self.began = self.by_beep = False

    def speech(self) -> None:
        """Take the start of speech: the greeting goes on."""
        self._speaking = True

    def pause(self, at: int) -> None:
        """Take the end of speech."""
        self._speaking, self._silent_since = False, at

    def beep(self, beep: Beep) -> None:
        """Take a beep that has ended."""
        self._beep = beep

    def due(self, now: int) -> bool:
        """Return whether to begin at sample ``now``, or to begin again because the beep came later."""
        if self._beep is not None and not self.by_beep:
            if now - self._beep.end < AFTER_BEEP_S * RATE:
                return False
            self.began = self.by_beep = True
            return True
        if self.began or self._speaking or now - self._silent_since < NO_BEEP_S * RATE:
            return False
        self.began = True
        return True
