"""What a sweep reaches within a budget: the fewest pauses cut off, or the shortest mean wait.

This is the measure of eot-bench (github.com/livekit/eot-bench).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rejoinder.agent.bench.turns.sweep import Numbers, Setting, Sweep

MEAN_BUDGETS_MS = (300.0, 600.0)
"""Budgets of the mean wait, in milliseconds."""
CUT_OFF_BUDGETS = (0.10, 0.05)
"""Budgets of the share of pauses cut off."""
RESAMPLES = 1_000
"""Resamples of the bootstrap."""
CONFIDENCE_PERCENTILES = (5.0, 95.0)
"""Percentiles of the confidence interval."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit: of the mean wait in ms, or of the share of pauses cut off. One of them is None."""

    mean_ms: float | None = None
    cut_off: float | None = None

    def __str__(self) -> str:
        return f"mean {self.mean_ms:.0f} ms" if self.mean_ms is not None else f"{self.cut_off:.0%} cut off"


BUDGETS = (
    *(Budget(mean_ms=ms) for ms in MEAN_BUDGETS_MS),
    *(Budget(cut_off=share) for share in CUT_OFF_BUDGETS),
)
"""The four budgets of the table."""


@dataclass(frozen=True, slots=True)
class Result:
    """What the best setting within a budget does.

    cut_off: share of the pauses. mean_ms: mean wait at ends. low, high: 90 % confidence interval of the
    figure that the budget leaves open, by resampling the speakers.
    """

    budget: Budget
    setting: Setting
    cut_off: float
    mean_ms: float
    low: float
    high: float


def results(found: Sweep) -> Iterator[Result | None]:
    """Yield the result within each budget, None where no setting keeps to it."""
    cut, mean = _figures(found, np.ones((1, len(found.speakers))))
    resampled = _figures(found, _resamples(len(found.speakers)))
    for budget in BUDGETS:
        place = best(cut[0], mean[0], budget)
        if place is None:
            yield None
            continue
        open_figures = [
            one[chosen]
            for shares, means in zip(*resampled, strict=True)
            if (chosen := best(shares, means, budget)) is not None
            for one in [shares if budget.cut_off is None else means]
        ]
        low, high = np.percentile(open_figures or [np.nan], CONFIDENCE_PERCENTILES)
        yield Result(
            budget,
            found.settings[place],
            float(cut[0][place]),
            float(mean[0][place]),
            float(low),
            float(high),
        )


def best(cut_off: Numbers, mean_ms: Numbers, budget: Budget) -> int | None:
    """Return the index of the best setting within a budget, None if there is none.

    cut_off, mean_ms: of each setting, shape (settings,).
    """
    if budget.mean_ms is not None:
        within, wanted = mean_ms <= budget.mean_ms, cut_off
    else:
        within, wanted = cut_off <= (budget.cut_off or 0.0), mean_ms
    within = within & np.isfinite(wanted)  # a resample may have drawn only speakers without pauses
    return int(np.argmin(np.where(within, wanted, np.inf))) if within.any() else None


def best_setting(found: Sweep, budget: Budget) -> int | None:
    """Return the index of the setting of a sweep that is best within a budget, None if there is none."""
    cut, mean = _figures(found, np.ones((1, len(found.speakers))))
    return best(cut[0], mean[0], budget)


def at_setting(found: Sweep, place: int) -> tuple[float, float]:
    """Return the share of pauses cut off and the mean wait in ms at one setting of a sweep."""
    cut, mean = _figures(found, np.ones((1, len(found.speakers))))
    return float(cut[0][place]), float(mean[0][place])


def _figures(found: Sweep, weights: Numbers) -> tuple[Numbers, Numbers]:
    """Return the shares cut off and the mean waits, each of shape (rows of weights, settings)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return (
            (weights @ found.cut.T) / (weights @ found.holds)[:, None],
            (weights @ found.waited.T) / (weights @ found.ends)[:, None],
        )


def _resamples(speakers: int) -> Numbers:
    draw = np.random.default_rng(0)  # the same each time, so that intervals can be compared
    return draw.multinomial(speakers, np.full(speakers, 1.0 / speakers), RESAMPLES).astype(float)
