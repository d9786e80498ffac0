"""Causes each fault beside callers who talk, and measures how late their answers are."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from rejoinder.agent.bench.attacks.measuring import hold_calls
from rejoinder.agent.bench.faults.causes import Fault
from rejoinder.agent.bench.faults.subject import Subject, serving_faults
from rejoinder.agent.bench.soaking.samples import METRIC_PREFIX, scrape

BEFORE_FAULT_SECONDS = 0.7
"""Time in which the callers connect before a fault, in seconds."""


@dataclass(frozen=True, slots=True)
class Caused:
    """What a fault did.

    victim: what its victim got. before, during: the times to the first audio of the others' answers, in ms.
    lost: turns of the others without an answer. logged: whether its line is in the log. moved: how far its
    metric moved.
    """

    fault: str
    victim: str
    before: list[float]
    during: list[float]
    lost: int
    logged: bool
    moved: float


async def cause(fault: Fault, callers: int, turns: int) -> Caused:
    """Cause a fault in a server of its own, and return what it did.

    callers: who talk. turns: of each, before the fault and from its beginning on. Cancelling ends the server.
    Raises ServerFailed, OSError or TimeoutError.
    """
    with tempfile.TemporaryDirectory() as folder:
        async with serving_faults(Path(folder), fault.sets_clock) as subject:
            before = await hold_calls(subject.url, callers, turns)
            counted, length = await _metric(subject, fault), subject.log.stat().st_size
            talking = asyncio.create_task(hold_calls(subject.url, callers, turns))
            try:
                await asyncio.sleep(BEFORE_FAULT_SECONDS)
                victim = await fault.cause(subject)
                during = await talking
            finally:
                talking.cancel()
            moved = await _metric(subject, fault) - counted
            said = subject.log.read_bytes()[length:].decode()
    lost, logged = before.lost + during.lost, fault.logged in said
    return Caused(fault.name, victim, list(before.times), list(during.times), lost, logged, moved)


async def _metric(subject: Subject, fault: Fault) -> float:
    name, label = fault.metric
    series = (await scrape(subject.port)).get(METRIC_PREFIX + name, [])
    return sum(value for labels, value in series if label in labels.values())


def rounds_joined(found: Sequence[Caused]) -> list[Caused]:
    """Join the rounds of each fault. found: those of one fault follow each other."""
    return [_joined(list(rounds)) for _, rounds in groupby(found, lambda one: one.fault)]


def _joined(rounds: Sequence[Caused]) -> Caused:
    before, during = (
        [time for one in rounds for time in getattr(one, name)] for name in ("before", "during")
    )
    victim = " / ".join(dict.fromkeys(one.victim for one in rounds))
    lost, logged = sum(one.lost for one in rounds), all(one.logged for one in rounds)
    return Caused(rounds[0].fault, victim, before, during, lost, logged, min(one.moved for one in rounds))


def percentile(times: Sequence[float], share: float) -> float | None:
    """Return a percentile of times, None without any. share: 50 for the median."""
    return float(np.percentile(times, share)) if times else None


def faults_table(found: Sequence[Caused]) -> Table:
    """Return the table for the terminal."""
    shown = Table(title="First audio of the others' answers, ms", title_justify="left", box=None)
    for column in ("fault", "victim", "lost", "before: p50", "p95", "during: p50", "p95", "log", "metric"):
        shown.add_column(column, overflow="fold")
    for one in found:
        figures = [percentile(times, share) for times in (one.before, one.during) for share in (50, 95)]
        shown.add_row(
            one.fault,
            one.victim,
            str(one.lost),
            *("-" if figure is None else f"{figure:.0f}" for figure in figures),
            "yes" if one.logged else "no",
            f"{one.moved:+g}",
        )
    return shown


def faults_report(found: Sequence[Caused]) -> list[dict[str, Any]]:
    """Return the figures as JSON."""
    return [
        asdict(one)
        | {
            f"p{share}_{which}_ms": percentile(times, share)
            for which, times in (("before", one.before), ("during", one.during))
            for share in (50, 95, 99)
        }
        for one in found
    ]
