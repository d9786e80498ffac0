"""``rejoinder bench failover``: the cost of a second language model, and the wait if one fails."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from rejoinder.agent.bench import failover as bench_failover
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import JsonOption
from rejoinder.agent.machine import occasion
from rejoinder.pipeline.errors import PipelineError


def failover(
    pairs: Annotated[int, typer.Option(min=2, help="replies of each server while nothing fails")] = 200,
    json_file: JsonOption = None,
) -> None:
    """Measure a second language model: idle, and as one fails.

    A server with one language model and one with two answer in turn. The models are a chat server that fails
    on purpose: killed, hung, refused, garbage, slow, dribbling, empty. Their deadlines are 0.5 s. With one
    model the caller hears an apology, with two the answer of the other.
    """
    console = console_beside(json_file)
    with progress_bar(console) as progress:
        task = progress.add_task("measuring", total=bench_failover.replies(pairs))
        try:
            waits = asyncio.run(bench_failover.measure(pairs, tell=lambda: progress.advance(task)))
        except PipelineError as error:
            leave(error)
    console.print(bench_failover.table(waits))
    difference = bench_failover.median_difference(waits)
    console.print(f"median difference of a pair while nothing fails: {difference:+.2f} ms")
    write(json_file, {**occasion(), **asdict(waits), "median_difference_ms": difference})
