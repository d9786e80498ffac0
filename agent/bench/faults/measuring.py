"""Causes each fault beside callers who talk, and measures how late their answers are."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from rejoinder.agent.bench.faults.causes import Fault, talk
from rejoinder.agent.bench.faults.server import Subject, serving_faults

BEFORE_FAULT_SECONDS = 0.7
"""Time in which the callers connect before a fault, in seconds."""


@dataclass(frozen=True, slots=True)
class Caused:
    """What a fault did.

    victim: what its victim got. before, during: the times to the first audio of the others' answers, in ms.
    lost: turns of the others without an answer. logged: its line in the log, "" for none. moved: the series
    that it moved, "" for none.
    """

    fault: str
    victim: str
    before: list[float]
    during: list[float]
    lost: int
    logged: str
    moved: str


async def cause(fault: Fault, callers: int, turns: int) -> Caused:
    """Cause a fault in a server of its own, and return what it did.

    callers: who talk. turns: of each, before the fault and from its beginning on. Cancelling ends the server.
    """
    with tempfile.TemporaryDirectory() as folder:
        async with serving_faults(Path(folder)) as subject, asyncio.TaskGroup() as tasks:
            before = await _talk(subject, callers, turns)
            counted, length = await subject.metrics(), subject.log.stat().st_size
            talking = tasks.create_task(_talk(subject, callers, turns))
            await asyncio.sleep(BEFORE_FAULT_SECONDS)
            got = [await fault.cause(subject) for _ in range(fault.times)]
            during = await talking
            moved, said = await subject.metrics(), subject.log.read_bytes()[length:].decode()
        lost = 2 * callers * turns - len(before) - len(during)
        line = next((one for one in said.splitlines() if fault.logged and fault.logged in one), "")
        series = [name for name in moved if fault.metric and name.startswith(fault.metric)]
        risen = next((name for name in series if moved[name] > counted.get(name, 0.0)), "")
        return Caused(fault.name, " / ".join(dict.fromkeys(got)), before, during, lost, line, risen)


async def _talk(subject: Subject, callers: int, turns: int) -> list[float]:
    times = await asyncio.gather(*(talk(subject.url, turns) for _ in range(callers)))
    return [time for one in times for time in one]


def percentile(times: Sequence[float], share: float) -> float:
    """Return a percentile of times. share: 50 for the median."""
    return float(np.percentile(times, share)) if times else float("nan")


def faults_table(found: Sequence[Caused]) -> Table:
    """Return the table for the terminal."""
    shown = Table(title="First audio of the others' answers, ms", title_justify="left", box=None)
    for column in ("fault", "victim", "lost", "p50", "p95", "p50 during", "p95 during", "log", "metric"):
        shown.add_column(column, overflow="fold")
    for one in found:
        figures = [percentile(times, share) for times in (one.before, one.during) for share in (50, 95)]
        logged = "yes" if one.logged else "no"
        shown.add_row(
            one.fault, one.victim, str(one.lost), *(f"{each:.0f}" for each in figures), logged, one.moved
        )
    return shown


def faults_report(found: Sequence[Caused]) -> list[dict[str, Any]]:
    """Return the figures as JSON."""
    return [
        asdict(one)
        | {
            f"p{share}_{which}_ms": percentile(times, share)
            for which, times in (("before", one.before), ("during", one.during))
            for share in (50, 95)
        }
        for one in found
    ]
