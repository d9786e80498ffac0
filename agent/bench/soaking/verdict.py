"""Judges the samples of a soak: the trend of each quantity in each segment, and what fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from rejoinder.agent.bench.soaking.samples import SoakSample
from rejoinder.agent.bench.soaking.trends import Trend, trend

HOUR_S = 3600.0
"""Seconds in an hour, in which slopes are given."""
ROW_SECONDS = 600.0
"""Length of one row of the table, in seconds."""
TABLE_ROWS = 6
"""Rows of a run that is shorter than an hour."""
UNJUDGED_SECONDS = 1_500.0
"""Beginning of each segment that does not count, in seconds: caches, pools and kept calls fill until then."""
UNJUDGED_SHARE = 1 / 3
"""Most of a segment that does not count for ``BY_UNITS``, as a share of it."""
FILLING_SHARE = 0.6
"""Most of a segment that does not count for ``BY_SHARE``, as a share of it."""
JUDGED_SHARE = 0.4
"""Least share of the run that a segment needs for a judgement of ``BY_SHARE``: a shorter one still fills."""
BY_SHARE = ("memory", "p50_ms")
"""Quantities that may grow by ``MOST_GROWTH`` an hour."""
BY_UNITS = ("descriptors", "threads", "tasks")
"""Counts, which may not grow. A part of each belongs to the calls of the moment."""
LEAST_ANSWERED = 0.5
"""Least share of a segment's turns that are answered: callers interrupt and vanish, so it is never all."""
LEAST_SAMPLED = 0.9
"""Least share of the planned samples. The others are missing because the server did not answer in time."""

TABLE_COLUMNS = ("MB", "fds", "threads", "tasks", "cores", "lag p99", "p50 ms", "p95 ms", "answered")
"""Columns of the table."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The trend of a quantity in one segment. trend: None with too few samples. fails: whether it grows."""

    segment: int
    quantity: str
    trend: Trend | None
    fails: bool

    @property
    def verdict(self) -> str:
        """What the trend shows, in words."""
        if self.trend is None:
            return "too few samples"
        if self.fails:
            return "grows"
        unsure = self.quantity in BY_SHARE and self.trend.may_grow_by_share()
        return "unknown" if unsure else "steady"


def judge(samples: Sequence[SoakSample]) -> list[Judged]:
    """Return the trend of each quantity in each segment, of ``BY_SHARE`` in the long ones."""
    judged = []
    for segment, group in groupby(samples, lambda sample: sample.segment):
        part = [*group]
        is_long = len(part) >= JUDGED_SHARE * len(samples)
        for quantity in (*BY_SHARE * is_long, "calls", *BY_UNITS):
            warm = after_warming(part, FILLING_SHARE if quantity in BY_SHARE else UNJUDGED_SHARE)
            pairs = [(one, value) for one in warm if (value := getattr(one, quantity)) is not None]
            hours = [one.at / HOUR_S for one, _ in pairs]
            beside = [float(one.calls) for one, _ in pairs] if quantity in BY_UNITS else []
            found = trend(hours, [float(value) for _, value in pairs], beside)
            fails = found is not None and (
                found.grows_by_share() if quantity in BY_SHARE else found.grows_by_units()
            )
            judged.append(Judged(segment, quantity, found, fails))
    return judged


def after_warming(segment: Sequence[SoakSample], share: float) -> list[SoakSample]:
    """Return the samples of a segment that count. share: most of it that does not."""
    begin, end = segment[0].at, segment[-1].at
    warm = min(UNJUDGED_SECONDS, share * (end - begin))
    return [one for one in segment if one.at >= begin + warm]


def failures(samples: Sequence[SoakSample], judged: Sequence[Judged], planned: int = 0) -> list[str]:
    """Return what fails a soak, in words. planned: number of samples that a whole run has, 0 if unknown."""
    found = [
        f"{named(one.quantity)} grows by {one.trend.slope / scale(one.quantity):.2f} ± "
        f"{one.trend.error / scale(one.quantity):.2f} an hour ({100 * one.trend.share:+.1f} %) "
        f"in segment {one.segment}"
        for one in judged
        if one.fails and one.trend
    ]
    found += [
        f"{named(one.quantity)} cannot be judged in segment {one.segment}: there are too few samples"
        for one in judged
        if one.trend is None
    ]
    for segment, group in groupby(samples, lambda sample: sample.segment):
        happened = sum((Counter(one.happened) for one in group), Counter[str]())
        if happened["answered"] < max(1.0, LEAST_ANSWERED * happened["asked"]):
            turns = f"{happened['answered']} of {happened['asked']} turns"
            found.append(f"{turns} were answered in segment {segment}")
    if len(samples) < max(2.0, LEAST_SAMPLED * planned):
        found.append(
            f"{len(samples)} of {planned} samples were taken: the server did not answer, or has ended"
        )
    return found


def tables(samples: Sequence[SoakSample], judged: Sequence[Judged]) -> list[RenderableType]:
    """Return the tables for the terminal: the run in rows of ten minutes, and the trends."""
    return [_rows(samples), _trends(judged), _happenings(samples)]


def _rows(samples: Sequence[SoakSample]) -> Table:
    shown = Table(title="The server", title_justify="left", title_style="bold", box=None)
    for name in ("min", *TABLE_COLUMNS):
        shown.add_column(name, justify="right", no_wrap=True)
    length = min(ROW_SECONDS, samples[-1].at / TABLE_ROWS) if samples else ROW_SECONDS

    def place(sample: SoakSample) -> tuple[int, int]:
        return sample.segment, int((sample.at - 1e-6) // length)

    killed = 0
    for (segment, row), group in groupby(samples, place):
        if segment > killed:
            shown.add_row("kill -9")
            killed = segment
        part = [*group]
        happened = Counter[str]()
        for one in part:
            happened.update(one.happened)
        shown.add_row(
            f"{row * length / 60:.3g}–{(row + 1) * length / 60:.3g}",
            f"{_mean(part, 'memory') / 1e6:.0f}",
            *(f"{_mean(part, name):.1f}" for name in BY_UNITS),
            f"{_mean(part, 'cores'):.2f}",
            *(f"{_mean(part, name):.0f}" for name in ("lag_p99_ms", "p50_ms", "p95_ms")),
            f"{happened['answered']}/{happened['asked']}",
        )
    return shown


def named(quantity: str) -> str:
    """Return the name of a quantity with its unit."""
    return {"memory": "memory in MB", "p50_ms": "latency p50 in ms"}.get(quantity, quantity)


def scale(quantity: str) -> float:
    """Return the size of a quantity's unit."""
    return 1e6 if quantity == "memory" else 1.0


def _mean(samples: Sequence[SoakSample], name: str) -> float:
    values = [value for one in samples if (value := getattr(one, name)) is not None]
    return sum(values) / len(values) if values else float("nan")


def _trends(judged: Sequence[Judged]) -> Table:
    shown = Table(title="Growth an hour", title_justify="left", title_style="bold", box=None)
    shown.add_column("", no_wrap=True)
    for name in ("segment", "mean", "slope", "error", "%", "samples", ""):
        shown.add_column(name, justify="right", no_wrap=True)
    for one in judged:
        name = named(one.quantity)
        if one.trend is None:
            shown.add_row(name, str(one.segment), "–", "–", "–", "–", "0", one.verdict)
            continue
        figures = (one.trend.mean, one.trend.slope, one.trend.error)
        shown.add_row(
            name,
            str(one.segment),
            *(f"{figure / scale(one.quantity):.1f}" for figure in figures),
            f"{100 * one.trend.share:+.1f}",
            str(one.trend.samples),
            f"[bold red]{one.verdict}[/]" if one.fails else one.verdict,
        )
    return shown


def _happenings(samples: Sequence[SoakSample]) -> Table:
    shown = Table(title="The callers", title_justify="left", title_style="bold", box=None, show_header=False)
    for title, field in (("calls", "wires"), ("what happened", "happened"), ("lost", "lost")):
        summed = Counter[str]()
        for one in samples:
            summed.update(getattr(one, field))
        shown.add_row(title, ", ".join(f"{name}: {count}" for name, count in summed.most_common(24)))
    return shown


def report(samples: Sequence[SoakSample], judged: Sequence[Judged], planned: int = 0) -> dict[str, Any]:
    """Return the figures as JSON data. planned: as in ``failures``."""
    return {
        "samples": len(samples),
        "seconds": samples[-1].at if samples else 0.0,
        "trends": [
            {
                "segment": one.segment,
                "quantity": one.quantity,
                "fails": one.fails,
                "verdict": one.verdict,
                **(
                    {}
                    if one.trend is None
                    else {
                        "mean": one.trend.mean,
                        "slope_per_hour": one.trend.slope,
                        "error": one.trend.error,
                        "share_per_hour": one.trend.share,
                        "samples": one.trend.samples,
                    }
                ),
            }
            for one in judged
        ],
        "failures": failures(samples, judged, planned),
    }
