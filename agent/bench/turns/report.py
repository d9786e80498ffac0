"""``rejoinder bench turns``: observes all recordings, and reports the curve of each rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress
from rich.table import Table

from rejoinder.agent.bench.cases.recordings import DEFAULT_SETS, Recording
from rejoinder.agent.bench.reports.output import percentages
from rejoinder.agent.bench.turns.cases import cases
from rejoinder.agent.bench.turns.conditions import Sounds, under
from rejoinder.agent.bench.turns.fit import SHIPPED_FIT, Fit, can_be_fitted, cross_validated, fused
from rejoinder.agent.bench.turns.rules import (
    Observation,
    Point,
    Wait,
    at_cut_off,
    at_median,
    curve,
    cuts_off,
    end_of_turn,
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
from rejoinder.pipeline.options import Endpointing
from rejoinder.pipeline.turns.operating_points import POINTS, turn_taking

TURN_SETS = (
    *DEFAULT_SETS,
    "speechocean762_more",
    "librispeech_test_other",
    "an4",
    "an4_more",
    "mfa_hesitations",
)
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
"""Factors of the waits of the rule ``latest_answer``."""
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
    recordings: Sequence[tuple[Recording, str]],
    added: Sounds | None,
    stt: str,
    turn: str,
    cuda: bool,
    progress: Progress,
) -> list[Observation]:
    """Observe all cases of the recordings, each in its condition. added: what conditions but clean add.

    Raises ModelError, and PipelineError if they have no ends or no pauses. Cancelling
    closes the models.
    """
    # The language model and the voice are not used; scripted ones load at once.
    specs = Specs(turn=turn, stt=stt, llm="scripted:llm", tts="scripted:tts")
    seen: list[Observation] = []
    async with open_models(specs, placement=Placement(cuda)) as models:
        if models.turn is None:
            raise PipelineError("a turn model is needed: --turn smart-turn")
        if isinstance(models.stt, Whisper) and models.stt.language == ENGLISH:
            models.stt.keeps_endings = True  # for the fit of its layer
        with progress:
            task = progress.add_task("listening", total=len(recordings))
            for recording, condition in recordings:
                for case in cases(recording):
                    if added:
                        case = under(case, condition, added)
                    if found := await observe(case, models.vad, models.stt, models.turn):
                        seen.append(found)
                progress.advance(task)
    if not all(any((each.resumes is None) == over for each in seen) for over in (True, False)):
        raise PipelineError("these recordings have no ends or no pauses: use more of them")
    return seen


def fits_for(seen: Sequence[Observation]) -> list[Fit]:
    """Return for each observation a fit on other speakers; with too few speakers, the shipped fit."""
    return cross_validated(seen) if can_be_fitted(seen) else [SHIPPED_FIT] * len(seen)


def curves(seen: Sequence[Observation], fits: Sequence[Fit]) -> Curves:
    """Return the curve of each rule over its parameter.

    The curve of the pipeline's rule is by its odds alone: with ``unsure_wait_ms``, more patience would not
    cut off fewer pauses from some point on.
    """
    by_odds = Endpointing(unsure_wait_ms=Endpointing().max_wait_ms)
    return {
        FUSED: curve(seen, lambda step: fused(seen, fits, replace(by_odds, patience=step)), PATIENCES),
        "the latest answer alone, times": curve(seen, latest_answer, FACTORS),
        "silence alone, ms": curve(seen, silence_alone, SILENCES),
    }


def points_table(seen: Sequence[Observation], fits: Sequence[Fit]) -> Table:
    """Return the table of the operating points: pauses cut off, and waits at ends."""
    shown = Table(title="Operating points: pauses cut off, and ms to the end", title_justify="left")
    for column in ("", "all pauses", "their own", "p50", "p90", "p95", "mean"):
        shown.add_column(column, justify="right" if column else "left")
    own = [each for each in seen if each.resumes is not None and each.natural]
    for name in POINTS:
        rule = fused(seen, fits, turn_taking(name))
        ends = [end_of_turn(each, rule) for each in seen if each.resumes is None]
        holds = [each for each in seen if each.resumes is not None]
        shares = [sum(cuts_off(each, rule) for each in some) / max(len(some), 1) for some in (holds, own)]
        waits = [*np.percentile(ends, (50, 90, 95)), np.mean(ends)]
        shown.add_row(name, *(f"{share:.1%}" for share in shares), *(f"{ms:.0f}" for ms in waits))
    return shown


def table(seen: Sequence[Observation], rule: Wait) -> Table:
    """Return the table for the terminal: the results of a rule for each set, and for all."""
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


def notes(seen: Sequence[Observation], curves: Curves) -> list[str]:
    """Return a line for each rule: its shares cut off at ``MEDIANS``, and its medians at ``SHARES``.

    The first line has the models' speed.
    """
    known = ", ".join(f"{name.replace('_', ' ')} {ms or '–'}" for name, ms in speed(seen).items())
    lines = [f"medians from the start of the silence on the machine that observed: {known}"]
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


def speed(seen: Sequence[Observation]) -> dict[str, float | None]:
    """Return when the words and the turn model's first answer are known at ends, in ms of silence.

    Both are medians; None where there are none. No rule ends a turn before the words are known, so the means
    of the table depend on the machine that observed.
    """
    ends = [each for each in seen if each.resumes is None]
    words = [each.text_at - each.pause for each in ends if each.text]
    judged = [each.judged[0][0] - each.pause for each in ends if each.judged]
    return {
        "words_known_ms": round(float(np.median(words)), 1) if words else None,
        "turn_model_answers_ms": round(float(np.median(judged)), 1) if judged else None,
    }


def report(seen: Sequence[Observation], curves: Curves) -> dict[str, Any]:
    """Return the curves, the models' speed and the cases as JSON data."""
    points = {name: [asdict(point) for point in points] for name, points in curves.items()}
    return {"curves": points, "speed": speed(seen), "cases": [row_of(each) for each in seen]}


def summary(points: Sequence[Point]) -> dict[str, float | None]:
    """Return the three key figures, None for what is beyond the end of the curve."""
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
    """Write a PNG of the curves."""
    about = "ms from the last speech to the end of the turn (dotted: p95)"
    with percentages(path, about, "% of pauses cut off", 2000, height=5) as axes:
        for name, points in curves.items():
            cut = [100 * point.cut_off for point in points]
            (line,) = axes.plot([point.p50 for point in points], cut, ".-", label=name)
            axes.plot([point.p95 for point in points], cut, ":", color=line.get_color())


def _add(shown: Table, point: Point) -> None:
    cells = (point.holds, point.ends, f"{point.cut_off:.1%}", f"{point.p50:.0f}", f"{point.p95:.0f}")
    shown.add_row(point.name, *map(str, cells))
