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
AGAIN_SECONDS = 0.5
"""Pause between two times that a fault is caused, in seconds."""
MOST_LATER = 1.2
"""How many times the p95 before a fault the others' p95 may be during it."""
LEAST_JUDGED = 40
"""Fewest answers whose p95 is judged: with fewer, one late answer decides it."""


@dataclass(frozen=True, slots=True)
class Caused:
    """What a fault did.

    victim: what its victim got. before, during: the times to the first audio of the others' answers, in ms.
    lost: turns of the others without an answer. logged: whether its line is in the log. moved: how far its
    metric moved. Both are None for a fault that a server cannot notice.
    """

    fault: str
    victim: str
    before: list[float]
    during: list[float]
    lost: int
    logged: bool | None
    moved: float | None

    @property
    def late(self) -> bool:
        """Whether the others' answers were later by more than ``MOST_LATER`` allows, at the p95."""
        before, during = percentile(self.before, 95), percentile(self.during, 95)
        enough = min(len(self.before), len(self.during)) >= LEAST_JUDGED
        return enough and before is not None and during is not None and during > MOST_LATER * before

    @property
    def wrong(self) -> str:
        """What should not have happened; "" if all is well."""
        if self.lost:
            return f"others lost {self.lost} turns"
        if self.logged is False or (self.moved is not None and self.moved <= 0.0):
            return "it is not in the log, or not in the metrics"
        return "others were answered later" if self.late else ""


async def cause(fault: Fault, callers: int, turns: int) -> Caused:
    """Cause a fault in a server of its own, and return what it did.

    callers: who talk. turns: of each, before the fault and from its beginning on. Cancelling ends the server.
    Raises ServerFailed, OSError or TimeoutError.
    """
    with tempfile.TemporaryDirectory() as folder:
        async with serving_faults(Path(folder), fault.caches, fault.sets_clock) as subject:
            before = await hold_calls(subject.url, callers, turns)
            counted, length = await _metric(subject, fault), subject.log.stat().st_size
            talking = asyncio.create_task(hold_calls(subject.url, callers, turns))
            try:
                await asyncio.sleep(BEFORE_FAULT_SECONDS)
                got = [await fault.cause(subject)]
                while not fault.once and not talking.done():
                    await asyncio.sleep(AGAIN_SECONDS)
                    got.append(await fault.cause(subject))
                during = await talking
            finally:
                talking.cancel()
                await asyncio.gather(talking, return_exceptions=True)
            moved = await _metric(subject, fault) - counted
            said = subject.log.read_bytes()[length:].decode()
    lost, noticed = before.lost + during.lost, bool(fault.logged)
    return Caused(
        fault.name,
        " / ".join(dict.fromkeys(got)),
        list(before.times),
        list(during.times),
        lost,
        fault.logged in said if noticed else None,
        moved if noticed else None,
    )


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
    lost, moved = sum(one.lost for one in rounds), [one.moved for one in rounds if one.moved is not None]
    logged = all(one.logged for one in rounds) if moved else None
    return Caused(rounds[0].fault, victim, before, during, lost, logged, min(moved, default=None))


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
            {True: "yes", False: "no", None: "-"}[one.logged],
            "-" if one.moved is None else f"{one.moved:+g}",
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
