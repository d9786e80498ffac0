"""``rejoinder bench faults``: callers who talk while faults are caused beside them."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from rejoinder.agent.bench.faults import measuring
from rejoinder.agent.bench.faults.causes import CAUSES
from rejoinder.agent.bench.process import check_proc
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import JsonOption
from rejoinder.agent.machine import occasion
from rejoinder.pipeline.errors import PipelineError


def faults(
    callers: Annotated[int, typer.Option(min=1, max=100, help="callers who talk")] = 4,
    turns: Annotated[int, typer.Option(min=1, help="turns of each, before a fault and during it")] = 10,
    rounds: Annotated[int, typer.Option(min=1, help="servers in which each fault is caused")] = 3,
    only: Annotated[str, typer.Option(help="faults whose names contain this")] = "",
    json_file: JsonOption = None,
) -> None:
    """Measure answers while faults are caused for real.

    Engines raise, hang and end their threads, the disk is full, files are locked, no file descriptor is left,
    the clock is set, and a network is bad. Each fault has a server of its own, and is caused again until the
    callers have talked. The models are scripted, with real engines. Exits with 1 where a fault costs another
    caller a turn or a fifth more at the p95, or is not in the log and the metrics.
    """
    console = console_beside(json_file)
    chosen = [one for one in CAUSES if only in one.name]
    for one in chosen:
        if one.missing:
            console.print(f"{one.missing} is missing here, so this fault is not caused: {one.name}")
    try:
        check_proc()
        if not chosen:
            raise PipelineError(f"no fault's name contains {only!r}")
        with progress_bar(console) as progress:
            again = [one for one in chosen if not one.missing for _ in range(rounds)]
            tried = [
                asyncio.run(measuring.cause(one, callers, turns))
                for one in progress.track(again, description="faults")
            ]
    except (PipelineError, OSError, TimeoutError) as error:
        leave(error if isinstance(error, PipelineError) else PipelineError(f"the server is gone: {error}"))
    found = measuring.rounds_joined(tried)
    console.print(measuring.faults_table(found))
    figures = {"callers": callers, "turns": turns, "rounds": rounds}
    write(json_file, {**occasion(), **figures, "faults": measuring.faults_report(found)})
    wrong = [f"{one.fault}: {one.wrong}" for one in found if one.wrong]
    if wrong:
        leave(PipelineError("; ".join(wrong)))
