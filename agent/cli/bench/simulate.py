"""``rejoinder bench simulate``: simulated calls in virtual time."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rejoinder.agent.bench import simulate as bench_simulate
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import JsonOption
from rejoinder.agent.machine import occasion
from rejoinder.models.threads import cores
from rejoinder.pipeline.errors import PipelineError


def simulate(
    calls: Annotated[int, typer.Option(min=1, help="calls of random callers")] = 2_000,
    seed: Annotated[int, typer.Option(min=0, help="seed of the first caller")] = 0,
    sweep: Annotated[
        int, typer.Option(min=0, help="instead, break each script off at every Nth step; 1: at all steps")
    ] = 0,
    processes: Annotated[int, typer.Option(min=0, help="processes; 0: one per core")] = 0,
    json_file: JsonOption = None,
) -> None:
    """Check thousands of simulated calls, in virtual time.

    Needs no weights and no recordings. Exits with 1 if an invariant fails, and names the caller.
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
