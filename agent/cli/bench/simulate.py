"""``rejoinder bench simulate``: simulated calls in virtual time."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rejoinder.agent.bench import simulate as bench_simulate
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import (
    JsonOption,
)
from rejoinder.agent.machine import occasion
from rejoinder.models.threads import cores
from rejoinder.pipeline.errors import PipelineError


def simulate(
    calls: Annotated[int, typer.Option(min=1, help="calls of random callers")] = 2_000,
    seed: Annotated[int, typer.Option(min=0, help="the first of them")] = 0,
    sweep: Annotated[
        int, typer.Option(min=0, help="instead: break all scripts off in every Nth step; 1 for every one")
    ] = 0,
    processes: Annotated[int, typer.Option(min=0, help="0 for one on each core")] = 0,
    json_file: JsonOption = None,
) -> None:
    """Check thousands of simulated calls, in virtual time.

    Needs no weights and no recordings. Ends with 1 where something was not true, and names the caller.
    """
    report: dict[str, Any] = {**occasion(), "seed": seed, "sweep": sweep}
    console = console_beside(json_file)
    with progress_bar(console) as progress:
        task = progress.add_task("calling", total=bench_simulate.pieces(calls, sweep))
        simulated = bench_simulate.run(
            calls, seed, sweep, processes or cores(), lambda done: progress.update(task, completed=done)
        )
    console.print(bench_simulate.table(simulated))
    write(json_file, {**report, **bench_simulate.report(simulated)})
    if failures := simulated.batch.failures:
        leave(PipelineError("\n".join(failures[:20])))
