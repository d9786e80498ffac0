"""Fits trends over a soak, by ordinary least squares, and decides which of them are failures.

A standard error that takes samples for independent is too small where each is like the one before. So the
number of samples is reduced by the lag-1 autocorrelation of the residuals: Santer et al., Statistical
significance of trends and trend differences in layer-average atmospheric temperature time series (JGR 105,
2000), section 3.1, doi.org/10.1029/1999JD901105.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SIGNIFICANT_ERRORS = 2.0
"""A slope is significant from this many standard errors on."""
MOST_GROWTH = 0.01
"""Most growth of memory and latency in one unit of time, as a share of the mean."""
LEAST_UNITS = 1.0
"""Growth of a count over all samples that is a failure: one descriptor, thread or task."""
LEAST_SAMPLES = 4
"""Fewest samples of a fit."""


@dataclass(frozen=True, slots=True)
class Trend:
    """The slope of a quantity.

    mean: of the quantity. slope, error: growth in one unit of time, and its standard error. span: units of
    time from the first to the last sample. samples: number of them.
    """

    mean: float
    slope: float
    error: float
    span: float
    samples: int

    @property
    def share(self) -> float:
        """Growth in one unit of time as a share of the mean."""
        return self.slope / self.mean if self.mean else 0.0

    @property
    def is_significant(self) -> bool:
        """Whether the quantity grows for more than chance."""
        return self.slope > SIGNIFICANT_ERRORS * self.error

    def may_grow_by_share(self) -> bool:
        """Return whether growth of memory or latency by more than ``MOST_GROWTH`` is within the error."""
        return self.slope + SIGNIFICANT_ERRORS * self.error > MOST_GROWTH * self.mean

    def grows_by_share(self) -> bool:
        """Return whether memory or latency fails: it grows, and by more than ``MOST_GROWTH``."""
        return self.is_significant and self.share > MOST_GROWTH

    def grows_by_units(self) -> bool:
        """Return whether a count fails: it grows, and by at least ``LEAST_UNITS`` over all samples."""
        return self.is_significant and self.slope * self.span >= LEAST_UNITS


def trend(times: Sequence[float], values: Sequence[float], beside: Sequence[float] = ()) -> Trend | None:
    """Return the trend of values over time, None for fewer than ``LEAST_SAMPLES``.

    beside: a further quantity that explains a part of each value, such as the number of calls at that moment;
    empty for none.
    """
    count = len(times)
    if count < LEAST_SAMPLES:
        return None
    measured, at = np.asarray(values, float), np.asarray(times, float)
    columns = [np.ones(count), at - at.mean()]
    if len(beside) and np.ptp(beside) > 0:
        columns.append(np.asarray(beside, float) - np.mean(beside))
    design = np.stack(columns, axis=1)
    inverse = np.linalg.pinv(design.T @ design)
    found = inverse @ design.T @ measured
    residuals = measured - design @ found
    free = _effective(residuals) - design.shape[1]
    if free < 1.0:
        free = 1.0
    error = math.sqrt(float(residuals @ residuals) / free * float(inverse[1, 1]))
    return Trend(float(measured.mean()), float(found[1]), error, float(np.ptp(at)), count)


def _effective(residuals: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Return the number of independent samples that as many dependent ones are worth."""
    power = float(residuals @ residuals)
    if power <= 0.0:
        return float(len(residuals))
    lag = min(0.99, max(0.0, float(residuals[1:] @ residuals[:-1]) / power))
    return len(residuals) * (1.0 - lag) / (1.0 + lag)
