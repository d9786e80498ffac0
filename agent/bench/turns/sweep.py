"""Sweeps the settings that end a turn: patience, least silence and longest silence, all combinations of them.

This is the policy of eot-bench (github.com/livekit/eot-bench, Apache-2.0), with its three knobs: threshold,
action delay and timeout. A wait is counted for every end, so an end that was missed counts with the timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from rejoinder.agent.bench.turns.rules import Observation, WaitAt
from rejoinder.pipeline.turns.pause import ANSWER_MS

SWEPT_PATIENCES = tuple(round(0.25 * 2 ** (step / 2), 2) for step in range(18))
"""Values of the setting ``patience``: the threshold, as odds."""
LEAST_MS = (100, 150, 200, 250, 300, 400, 500, 600, 800)
"""Values of the setting ``min_wait_ms``: the action delay."""
MOST_MS = (400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2200, 2600, 3000)
"""Values of the setting ``max_wait_ms``: the timeout."""
SILENCES_MS = tuple(range(50, 3_001, 50))
"""Silences of the policy that uses no model, in milliseconds."""

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Setting:
    """One combination of settings. patience is 0 for silence alone."""

    patience: float
    min_wait_ms: int
    max_wait_ms: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """What each setting does to each speaker.

    settings: all of them, in order. speakers: names. cut: pauses cut off, shape (settings, speakers). waited:
    sum of the waits at ends in ms, same shape. holds, ends: numbers of pauses and of ends, shape (speakers,).
    """

    settings: Sequence[Setting]
    speakers: Sequence[str]
    cut: Numbers
    waited: Numbers
    holds: Numbers
    ends: Numbers

    def only(self, place: int) -> Sweep:
        """Return the sweep of one of its settings."""
        return replace(
            self, settings=[self.settings[place]], cut=self.cut[[place]], waited=self.waited[[place]]
        )


def combined(parts: Sequence[Sweep]) -> Sweep:
    """Return one sweep of several over different speakers and equally many settings.

    The settings are those of the first.
    """
    return Sweep(
        parts[0].settings,
        [name for part in parts for name in part.speakers],
        np.hstack([part.cut for part in parts]),
        np.hstack([part.waited for part in parts]),
        np.hstack([part.holds for part in parts]),
        np.hstack([part.ends for part in parts]),
    )


def sweep(seen: Sequence[Observation], rule: WaitAt) -> Sweep:
    """Judge a rule at every combination of the three settings.

    rule: gives waits without the least and the longest one.
    """
    moments = _Moments(seen)
    settings, ended = [], []
    for patience in SWEPT_PATIENCES:
        waits = moments.waits(lambda each, known, patience=patience: rule(each, known, patience))  # type: ignore[misc]
        for least, most in product(LEAST_MS, MOST_MS):
            if least <= most:
                settings.append(Setting(patience, least, most))
                ended.append(moments.ended(waits, least, most))
    return _by_speaker(seen, settings, np.array(ended))


def silence_sweep(seen: Sequence[Observation]) -> Sweep:
    """Judge the policy that ends every turn after the same silence."""
    moments = _Moments(seen)
    waits = moments.waits(lambda each, known: 0.0)
    settings = [Setting(0.0, silence, silence) for silence in SILENCES_MS]
    ended = [moments.ended(waits, silence, silence, answered=True) for silence in SILENCES_MS]
    return _by_speaker(seen, settings, np.array(ended))


class _Moments:
    """The moments of all observations at which something becomes known, as arrays of shape (n, most moments).

    In the times between two moments a rule's wait is constant (``rules.end_of_turn`` is the same for one).
    """

    def __init__(self, seen: Sequence[Observation]) -> None:
        self._seen = seen
        found = [[each.text_at, *(at for at, _ in each.judged if at > each.text_at)] for each in seen]
        width = max(map(len, found))
        self._now = np.full((len(seen), width), np.inf)
        for row, times in zip(self._now, found, strict=True):
            row[: len(times)] = times
        self._following = np.hstack((self._now[:, 1:], np.full((len(seen), 1), np.inf)))
        known = [
            [sum(at <= now for at, _ in each.judged) for now in row]
            for each, row in zip(seen, self._now, strict=True)
        ]
        self._known = np.array(known)
        self._pause = np.array([[each.pause] for each in seen])
        self._silent = np.array([[not each.text] for each in seen])

    def waits(self, wait: Callable[[Observation, int], float]) -> Numbers:
        """Return the wait of a rule at each moment, in ms."""
        found = np.full(self._now.shape, np.inf)
        for row, moment in np.argwhere(np.isfinite(self._now)):
            found[row, moment] = wait(self._seen[row], int(self._known[row, moment]))
        return found

    def ended(self, waits: Numbers, least: float, most: float, answered: bool = False) -> Numbers:
        """Return when each turn ends, in ms after the last speech, shape (n,).

        answered: whether the rule needs neither words nor an answer of a turn model.
        """
        lower = least if answered else np.where(self._known > 0, least, max(least, ANSWER_MS))
        limited = np.clip(waits, np.minimum(lower, most), most)
        if not answered:
            limited = np.where(self._silent, most, limited)
        ends = np.maximum(self._now, self._pause + limited)
        first = np.argmax(ends < self._following, axis=1)
        found: Numbers = ends[np.arange(len(ends)), first]
        return found


def _by_speaker(seen: Sequence[Observation], settings: Sequence[Setting], ended: Numbers) -> Sweep:
    speakers = sorted({each.speaker for each in seen})
    place = {name: at for at, name in enumerate(speakers)}
    belongs = np.zeros((len(seen), len(speakers)))
    belongs[np.arange(len(seen)), [place[each.speaker] for each in seen]] = 1.0
    is_end = np.array([each.resumes is None for each in seen])
    resumes = np.array([np.inf if each.resumes is None else each.resumes for each in seen])
    cut = (ended < resumes) & ~is_end
    return Sweep(
        settings,
        speakers,
        cut.astype(float) @ belongs,
        np.where(is_end, ended, 0.0) @ belongs,
        belongs[~is_end].sum(axis=0),
        belongs[is_end].sum(axis=0),
    )
