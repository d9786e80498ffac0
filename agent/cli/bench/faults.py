"""``rejoinder bench faults``: callers who talk while faults are caused beside them."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from rejoinder.agent.bench.faults.causes import FAULTS_TO_CAUSE
from rejoinder.agent.bench.faults.measuring import Caused, cause, faults_report, faults_table
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import JsonOption
from rejoinder.agent.machine import occasion
from rejoinder.pipeline.errors import PipelineError


def faults(
    callers: Annotated[int, typer.Option(min=1, max=100, help="callers who talk")] = 4,
    turns: Annotated[int, typer.Option(min=1, help="turns of each, before a fault and during it")] = 10,
    only: Annotated[str, typer.Option(help="faults whose names contain this")] = "",
    json_file: JsonOption = None,
) -> None:
    """Measure answers while faults are caused for real.

    Engines raise, hang and end their threads, the disk is full, the cache is locked, no file descriptor is
    left, and the clock jumps. Each fault has a server of its own. The models are scripted, with real engines.
    """
    console = console_beside(json_file)
    chosen = [one for one in FAULTS_TO_CAUSE if only in one.name]
    found: list[Caused] = []
    try:
        with progress_bar(console) as progress:
            for one in progress.track(chosen, description="faults"):
                found.append(asyncio.run(cause(one, callers, turns)))
    except PipelineError as error:
        leave(error)
    console.print(faults_table(found))
    write(json_file, {**occasion(), "callers": callers, "turns": turns, "faults": faults_report(found)})
