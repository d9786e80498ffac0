"""``rejoinder bench turns``: the observations of all recordings, and the curve they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.progress import Progress
from rich.table import Table

from rejoinder.agent.bench.cases.recordings import DEFAULT_SETS, Recording
from rejoinder.agent.bench.reports.output import percentages
from rejoinder.agent.bench.turns.cases import cases
from rejoinder.agent.bench.turns.fit import SHIPPED_FIT, Fit, can_be_fitted, cross_validated, fused
from rejoinder.agent.bench.turns.rules import (
    Observation,
    Point,
    Wait,
    at_cut_off,
    at_median,
    curve,
    judge,
    latest_answer,
    observe,
    silence_alone,
)
from rejoinder.agent.bench.turns.store import row_of
from rejoinder.models.loading import Specs, open_models
from rejoinder.models.placement import Placement
from rejoinder.models.stt.languages import ENGLISH
from rejoinder.models.stt.whisper import Whisper
from rejoinder.pipeline.errors import PipelineError

TURN_SETS = (*DEFAULT_SETS, "librispeech_test_other", "an4", "mfa_hesitations")
"""Sets of recordings for the ends of turns."""
PATIENCES = (
    0.5,
    1.0,
    1.5,
    2.0,
    2.5,
    3.0,
    3.5,
    4.0,
    4.5,
    5.0,
    5.5,
    6.0,
    7.0,
    8.0,
    10.0,
    12.0,
    15.0,
    17.0,
    18.0,
    19.0,
    20.0,
    25.0,
    30.0,
    50.0,
    99.0,
)
"""Values of the setting ``patience`` on the curve."""
FACTORS = (0.5, 0.7, 0.85, 1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
"""Factors of the waits of the rule that there was before."""
SILENCES = tuple(range(100, 2_500, 100))
"""Silences of the rule that waits a fixed time, in milliseconds."""
FUSED = "fused, patience"
"""The name of the pipeline's own rule in the report."""
Curves = dict[str, list[Point]]
"""The points of each rule, by its name."""
MEDIANS = (300.0, 500.0, 700.0)
"""Median latencies, in ms, at which the report lists the share of pauses cut off."""
SHARES = (0.05, 0.1, 0.15)
"""Shares of pauses cut off at which the report lists the median latency."""


async def observe_all(
    recordings: Sequence[Recording], stt: str, turn: str, cuda: bool, progress: Progress
) -> list[Observation]:
    """Process all cases of the recordings. Raises ModelError, and PipelineError if no case can be judged.

    Cancelling closes the models.
    """
    # The language model and the voice say nothing here; scripted ones cost no time to load.
    specs = Specs(turn=turn, stt=stt, llm="scripted:llm", tts="scripted:tts")
    seen: list[Observation] = []
    async with open_models(specs, placement=Placement(cuda)) as models:
        if models.turn is None:
            raise PipelineError("a turn model is needed: --turn smart-turn")
        if isinstance(models.stt, Whisper) and models.stt.language == ENGLISH:
            models.stt.keeps_endings = True  # for the fit of a layer, where there is none yet
        with progress:
            task = progress.add_task("listening", total=len(recordings))
            for recording in recordings:
                for case in cases(recording):
                    if found := await observe(case, models.vad, models.stt, models.turn):
                        seen.append(found)
                progress.advance(task)
    if not all(any((each.resumes is None) == over for each in seen) for over in (True, False)):
        raise PipelineError("these recordings give no ends or no pauses: take more of them")
    return seen


def fits_for(seen: Sequence[Observation]) -> list[Fit]:
    """Return for each observation what was fitted on other speakers; what is shipped, where there are few."""
    return cross_validated(seen) if can_be_fitted(seen) else [SHIPPED_FIT] * len(seen)


def curves(seen: Sequence[Observation], fits: Sequence[Fit]) -> Curves:
    """Return the curve of each rule over its knob."""
    return {
        FUSED: curve(seen, lambda step: fused(seen, fits, step), PATIENCES),
        "the latest answer alone, times": curve(seen, latest_answer, FACTORS),
        "silence alone, ms": curve(seen, silence_alone, SILENCES),
    }


def table(seen: Sequence[Observation], rule: Wait) -> Table:
    """Return the table for the terminal: a rule for each set."""
    shown = Table(
        title="Pauses cut off, and ms from the last speech to the end of the turn", title_justify="left"
    )
    for column in ("", "pauses", "ends", "cut off", "p50", "p95"):
        shown.add_column(column, justify="right" if column else "left")
    for name in dict.fromkeys(each.set for each in seen):
        chosen = [each for each in seen if each.set == name]
        if any(each.resumes is None for each in chosen) and any(each.resumes for each in chosen):
            _add(shown, judge(name, chosen, rule))
    shown.add_section()
    _add(shown, judge("all", seen, rule))
    for kind, natural in (("pauses put in", False), ("their own pauses", True)):
        chosen = [each for each in seen if each.resumes is None or each.natural == natural]
        if any(each.resumes for each in chosen):
            _add(shown, judge(kind, chosen, rule))
    return shown


def notes(curves: Curves) -> list[str]:
    """Return a line for each rule: what it reaches at usual medians, and its median at usual shares."""
    lines = []
    for name, points in curves.items():
        figures = [
            f"{cut:.1%} at {ms:.0f} ms" for ms in MEDIANS if (cut := at_median(points, ms)) is not None
        ]
        figures += [
            f"{ms:.0f} ms for {share:.0%}"
            for share in SHARES
            if (ms := at_cut_off(points, share)) is not None
        ]
        lines.append(f"{name}: {'; '.join(figures)}")
    return lines


def report(seen: Sequence[Observation], curves: Curves) -> dict[str, Any]:
    """Return the same for a machine, with a row for each case, as a fit reads them."""
    points = {name: [asdict(point) for point in points] for name, points in curves.items()}
    return {"curves": points, "cases": [row_of(each) for each in seen]}


def summary(points: Sequence[Point]) -> dict[str, float | None]:
    """Return the three figures that are followed, None where the curve does not reach so far."""
    cut = at_median(points, 300.0)
    good = min(
        (point for point in points if point.cut_off <= 0.05), key=lambda point: point.p50, default=None
    )
    return {
        "false_cutoff_at_300ms": None if cut is None else round(cut, 4),
        "median_ms_at_5pct": None if good is None else round(good.p50, 1),
        "p95_ms_at_5pct": None if good is None else round(good.p95, 1),
    }


def draw(curves: Curves, path: Path) -> None:
    """Draw the curves into a PNG."""
    about = "ms from the last speech to the end of the turn (dotted: p95)"
    with percentages(path, about, "% of pauses cut off", 2000, height=5) as axes:
        for name, points in curves.items():
            cut = [100 * point.cut_off for point in points]
            (line,) = axes.plot([point.p50 for point in points], cut, ".-", label=name)
            axes.plot([point.p95 for point in points], cut, ":", color=line.get_color())


def _add(shown: Table, point: Point) -> None:
    cells = (point.holds, point.ends, f"{point.cut_off:.1%}", f"{point.p50:.0f}", f"{point.p95:.0f}")
    shown.add_row(point.name, *map(str, cells))
