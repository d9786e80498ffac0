"""Decides when the agent says a filler such as "One moment.", because the caller waits for an answer.

The rules:

- A filler is said when the caller has heard nothing for ``after_s`` since the end of the own words. While a
  tool runs, the answer is far away: then ``TOOL_S`` after the beginning of the run is enough.
- None is said within ``TOOL_S`` of the end of the turn: most answers come sooner.
- What the agent says before it calls a tool counts as a filler. Another one follows after ``AGAIN_S`` of
  silence.
- Each filler is said at most once for one answer, in turn. Where no tool runs, the first one of an answer
  comes at least ``LEAST_S`` after the last one of an earlier answer.
- None is said once the caller speaks. After a noise without words the wait begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence

USUAL_FILLERS = ("One moment.", "Let me see.")
"""The default fillers."""
FILLER_AFTER_S = 1.2
"""Default of the silence after which a filler is said, in seconds."""
TOOL_S = 0.3
"""Seconds after the beginning of a tool's run, and after the end of a turn, in which no filler is said."""
AGAIN_S = 1.3
"""Silence between two fillers of one answer, in seconds."""
LEAST_S = 10.0
"""Least time between the fillers of two answers where no tool runs, in seconds."""


class Fillers:
    """The fillers of one call. It does no I/O and has no clock: times are arguments, in seconds.

    words: the fillers, empty for none. after_s: silence after which one is said.
    """

    def __init__(self, words: Sequence[str], after_s: float) -> None:
        self.words = tuple(words)
        self.after_s = after_s
        self._left = 0
        self._next = 0
        self._silent_from: float | None = None
        self._not_before = 0.0
        self._last = -LEAST_S
        self._calling = self._spoken = False

    @property
    def due(self) -> float | None:
        """The time at which ``say`` returns a filler, None for never."""
        if self._silent_from is None or not self._left:
            return None
        if self._spoken:
            return max(self._not_before, self._silent_from + AGAIN_S)
        if self._calling:
            return self._not_before
        return max(self._not_before, self._silent_from + self.after_s, self._last + LEAST_S)

    def turn_ended(self, now: float, silent_from: float) -> None:
        """Record the end of the caller's turn, whose last sound was at ``silent_from``."""
        self._begin(now, silent_from)

    def reply_started(self, now: float) -> None:
        """Record that a reply begins; without a turn before it, such as a client's request, it is owed."""
        if self._silent_from is None:
            self._begin(now, now)

    def calling(self, now: float, silent_from: float) -> None:
        """Record that the answer waits for a tool. silent_from: end of the audio so far."""
        if self._silent_from is None and not self._spoken:
            self._begin(now, silent_from)
        self._silent_from = max(silent_from, self._silent_from or silent_from)
        self._not_before, self._calling = now + TOOL_S, True

    def returned(self) -> None:
        """Record that no tool is waited for any more."""
        self._calling = False

    def audio_until(self, at: float) -> None:
        """Record that the caller hears the agent until ``at``."""
        if self._silent_from is not None:
            self._silent_from = max(self._silent_from, at)

    def postpone(self, now: float) -> None:
        """Record that no filler can be said at ``now``; try again soon."""
        self._not_before = now + TOOL_S

    def spoke(self) -> None:
        """Record that the agent says words of the answer."""
        self._silent_from, self._spoken = None, True

    def forget(self) -> None:
        """Record that no answer is owed: the caller speaks, or no reply comes."""
        self._silent_from, self._calling = None, False

    def say(self, now: float) -> str:
        """Return the filler to say now, "" for none."""
        due = self.due
        if due is None or now < due:
            return ""
        words = self.words[self._next % len(self.words)]
        self._next, self._left = self._next + 1, self._left - 1
        self._silent_from, self._last, self._spoken = now, now, True
        return words

    def _begin(self, now: float, silent_from: float) -> None:
        self._left, self._spoken, self._calling = len(self.words), False, False
        self._silent_from, self._not_before = silent_from, now + TOOL_S
