"""Judges settings on speakers who were in view neither of the fit nor of the choice of the settings."""

from __future__ import annotations

from collections.abc import Sequence

from rejoinder.agent.bench.turns.budgets import BUDGETS, Budget, at_setting, best_setting
from rejoinder.agent.bench.turns.fit import can_be_fitted, cross_validated, fit, folds, fused_waits
from rejoinder.agent.bench.turns.rules import Observation
from rejoinder.agent.bench.turns.sweep import Sweep, combined, sweep

HALVES = 2
"""Parts of the speakers: the settings of each are chosen on the other."""


def held_out(seen: Sequence[Observation]) -> list[tuple[float, float] | None]:
    """Return the share of pauses cut off and the mean wait in ms for each of ``BUDGETS``, chosen on others.

    The rule is fitted to one half of the speakers, and the settings are chosen on that half by another
    cross-validation; the other half is judged with both. So a result may miss its budget. None where no
    setting keeps to a budget, or where there are too few speakers.
    """
    if not can_be_fitted(seen):
        return [None] * len(BUDGETS)
    halves = []
    for rest, part in folds([each.speaker for each in seen], HALVES):
        others, judged = ([seen[place] for place in places] for places in (rest, part))
        if not can_be_fitted(others):
            return [None] * len(BUDGETS)
        chosen_on = sweep(others, fused_waits(others, cross_validated(others)))
        fitted = fused_waits(judged, [fit(others)] * len(judged))
        halves.append((chosen_on, sweep(judged, fitted)))
    return [chosen_elsewhere(halves, budget) for budget in BUDGETS]


def chosen_elsewhere(halves: Sequence[tuple[Sweep, Sweep]], budget: Budget) -> tuple[float, float] | None:
    """Return the share cut off and the mean wait in ms over both halves, None if no setting keeps to it.

    halves: of each, the sweep of the other speakers, on which its setting is chosen, and its own.
    """
    parts = []
    for chosen_on, judged in halves:
        place = best_setting(chosen_on, budget)
        if place is None:
            return None
        parts.append(judged.only(place))
    return at_setting(combined(parts), 0)
