"""Tells the caller's voice from voices in the background, by the caller's own level.

A person beside the caller, a meeting or a television is speech to voice activity detection. But it is quieter
than the caller, who is close to the microphone. A voice counts as the caller's if two windows of it come near
the level of the caller's last turns. docs/lab/speakers.md has the measurements of the constants.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import log10

import numpy as np

from rejoinder.pipeline.audio.chunk import RATE

SMOOTH_WINDOWS = 4
"""Windows whose mean power is the level: syllables are longer than a window of 32 ms."""
VOICED = 0.5
"""Speech probability from which a window is a voice, by default."""
MARGIN_DB = 9.0
"""A voice that stays further below the caller's level than this is in the background."""
AFTER_SAMPLES = RATE * 4 // 10
"""Weak syllables follow a loud one within this time, in samples."""
BEFORE_SAMPLES = RATE * 2 // 10
"""A loud syllable follows a soft onset within this time, in samples. So long a decision may take."""
LOUDEST_PERCENT = 90.0
"""Percentile of a turn's windows that is its level."""
LEAST_LEVEL_WINDOWS = 6
"""Fewest voiced windows of a turn that has a level: 0.2 s."""
MOST_WINDOWS = 512
"""Most voiced windows of a turn that are kept: 16 s."""
FOLLOW = 0.5
"""Share of the difference by which the caller's level follows that of a turn."""
ATTEMPT_SAMPLES = RATE * 3 // 10
"""Least background voice that may be an attempt of the caller, in samples."""
WAIT_SAMPLES = 2 * RATE
"""Least silence in which a caller waits for an answer before the second attempt, in samples."""
FORGET_SAMPLES = 30 * RATE
"""Silence after which an attempt is forgotten, in samples."""
LONGEST_SAMPLES = 20 * RATE
"""Background voice that nobody answers is taken for the caller's after this much of it, in samples."""


@dataclass(frozen=True, slots=True)
class Window:
    """One window of the user's audio.

    end: index of the sample after the last one. probability: of speech. power: mean square of its samples.
    """

    end: int
    probability: float
    power: float


class CallerVoice:
    """Decides which windows have the caller's voice. It has no clock and does no I/O.

    Until the first turn is answered, every voice is the caller's. A caller who gets much quieter is shut out
    for one utterance: the second one, after a wait for an answer, counts, and sets a new level. Utterances
    shorter than ``ATTEMPT_SAMPLES`` add up to one.

    level: the caller's level in dBFS, None before the first turn.
    """

    def __init__(self) -> None:
        self.level: float | None = None
        self._is_only = True
        self._voiced = VOICED
        self._is_open = False
        self._levels: deque[float] = deque(maxlen=MOST_WINDOWS)
        self._held: deque[Window] = deque()
        self._now = 0
        self._powers: deque[float] = deque(maxlen=SMOOTH_WINDOWS)
        self._near_until = 0
        self._shut_out = 0  # background voice since the caller spoke, in samples
        self._shut_until = 0

    @property
    def undecided(self) -> bool:
        """Whether a voice may be the soft onset of the caller's; ``judge`` returns its windows later."""
        return bool(self._held)

    def configure(self, is_only: bool, voiced: float = VOICED) -> None:
        """Set whether only the caller counts. With False every voice does: two people share a telephone.

        voiced: speech probability from which a window is a voice.
        """
        self._is_only, self._voiced = is_only, voiced

    def forget(self) -> None:
        """Forget the caller's level: from here the microphone or the person may be another."""
        self.level, self._is_open = None, False
        self._levels.clear()
        self._shut_out = 0

    def turn_began(self) -> None:
        """Record that a turn, or a sound over the agent, begins: its level is measured from here."""
        self._levels.clear()

    def turn_answered(self) -> None:
        """Record that the turn had words and is answered: the caller's level follows its level."""
        if len(self._levels) >= LEAST_LEVEL_WINDOWS:
            level = float(np.percentile(self._levels, LOUDEST_PERCENT))
            known = None if self._is_open else self.level
            self.level = level if known is None else known + FOLLOW * (level - known)
            self._is_open = False  # only now: a shorter turn leaves the level too high for a quiet caller
        self._shut_out = 0

    def judge(self, window: Window, agent_speaks: bool) -> list[Window]:
        """Return the next windows that are decided, those of a background voice with probability 0.

        agent_speaks: whether the agent has the floor; a caller who waits for an answer speaks after it.
        """
        size, self._now = window.end - self._now, window.end
        self._powers.append(window.power)
        level = 10 * log10(sum(self._powers) / len(self._powers) + 1e-12)
        is_voiced = window.probability >= self._voiced
        if is_voiced and self._is_near(level):
            self._levels.append(level)
            self._near_until = window.end + AFTER_SAMPLES
            self._shut_out = 0
            return self._release([window])
        if not self._held and (not is_voiced or window.end <= self._near_until):
            if is_voiced:
                self._levels.append(level)
            return [window]
        self._held.append(window)
        if is_voiced and self._asks_again(size, agent_speaks):
            return self._release([])
        decided = []
        while self._held and self._held[0].end <= window.end - BEFORE_SAMPLES:
            decided.append(self._without_voice(self._held.popleft()))
        if not any(each.probability >= self._voiced for each in self._held):
            decided += self._release([])
        return decided

    def _is_near(self, level: float) -> bool:
        if not self._is_only or self._is_open or self.level is None:
            return True
        return level >= self.level - MARGIN_DB

    def _release(self, more: list[Window]) -> list[Window]:
        released = [*self._held, *more]
        self._held.clear()
        return released

    def _asks_again(self, size: int, agent_speaks: bool) -> bool:
        """Count the background voice, and return whether it has to be the caller after all."""
        silence, self._shut_until = self._now - size - self._shut_until, self._now
        if silence > FORGET_SAMPLES:
            self._shut_out = 0
        if agent_speaks:  # a television goes on when the agent has finished: it did not wait
            return False
        waited = silence >= WAIT_SAMPLES and self._shut_out >= ATTEMPT_SAMPLES
        self._shut_out += size
        self._is_open = waited or self._shut_out >= LONGEST_SAMPLES
        return self._is_open

    def _without_voice(self, window: Window) -> Window:
        return Window(window.end, 0.0, window.power) if window.probability >= self._voiced else window
