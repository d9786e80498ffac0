"""``rejoinder bench brains``: how fast language models of several sizes answer on this machine."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from rejoinder.agent.bench.brains import measuring
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import JsonOption, names_of
from rejoinder.agent.machine import occasion
from rejoinder.models.threads import quiet
from rejoinder.pipeline.errors import PipelineError


def brains(
    models: Annotated[
        str, typer.Option(help="specs, comma-separated; the first is compared with")
    ] = ",".join(measuring.BRAINS),
    rounds: Annotated[int, typer.Option(min=1, help="rounds, in which the models take turns")] = 3,
    tokens: Annotated[int, typer.Option(min=1, help="tokens of each answer that are measured")] = 48,
    busy: Annotated[
        bool,
        typer.Option("--busy", help="measure processor time, on a machine with other work"),
    ] = False,
    json_file: JsonOption = None,
) -> None:
    """Measure how fast language models of several sizes answer.

    A model whose weights are absent is measured with random weights of the same shapes, which take 1.7 GB in
    the folder of temporary files. Its speed is that of the real model; its answers are not. With --busy, a
    model with several threads seems slower than it is: it counts the time of all of them.
    """
    console = console_beside(json_file)
    specs = names_of(models)
    quiet()
    try:
        with TemporaryDirectory(prefix="brains-") as folder, progress_bar(console) as progress:
            task = progress.add_task("measuring", total=rounds * len(specs))
            found = asyncio.run(
                measuring.measure(
                    specs,
                    rounds,
                    tokens,
                    Path(folder),
                    lambda: progress.advance(task),
                    time.process_time if busy else time.perf_counter,
                )
            )
    except PipelineError as error:
        leave(error)
    console.print(measuring.table(found))
    write(json_file, {**occasion(), "brains": measuring.report(found)})
