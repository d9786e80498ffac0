"""``rejoinder bench context``: what is known after 20 minutes, and how long the prompts are."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rejoinder.agent.bench.context.long_call import LAST_QUESTIONS, lines
from rejoinder.agent.bench.context.real import RealCall, hold_real
from rejoinder.agent.bench.context.virtual import calls_table, run_calls
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.bench.reports.waterfall import summarise
from rejoinder.agent.cli.options import JsonOption, LlmOption
from rejoinder.agent.config import Settings, load
from rejoinder.agent.machine import occasion
from rejoinder.agent.settings.context import COMPRESSIONS
from rejoinder.models.loading import open_llm
from rejoinder.pipeline.errors import PipelineError


def context(
    real: Annotated[bool, typer.Option(help="hold the call with a real language model, too")] = True,
    llm: LlmOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure what an agent still knows after 20 minutes.

    In the first minute, the caller says a name, a number and a decision. In virtual time, a model that knows
    what its prompt says answers at the end; then a real model does.
    """
    console = console_beside(json_file)
    found = run_calls()
    console.print(calls_table(found))
    calls: dict[str, RealCall] = {}
    if real:
        try:
            calls = asyncio.run(_real(load({"llm": llm})[0], console))
        except PipelineError as error:
            leave(error)
        console.print(_table(calls))
    report: dict[str, Any] = {
        **occasion(),
        "virtual": {name: asdict(kept) for name, kept in found.items()},
        "real": {name: asdict(call) for name, call in calls.items()},
    }
    write(json_file, report)


async def _real(settings: Settings, console: Console) -> dict[str, RealCall]:
    found: dict[str, RealCall] = {}
    async with open_llm(settings.llm, settings.threads(), settings.placement()) as llm:
        with progress_bar(console) as progress:
            task = progress.add_task("talking", total=len(COMPRESSIONS) * len(lines()))
            for name, compress in COMPRESSIONS.items():
                options = settings.options()
                options.compress = compress
                found[name] = await hold_real(llm, options, compress, lambda: progress.advance(task))
    return found


def _table(calls: dict[str, RealCall]) -> Table:
    columns = ("summaries", "known", "made", "longest", "largest prompt", "first turns", "last turns")
    table = Table(*columns, title="The same call with a real model: first word, in ms (p50)", box=None)
    for name, call in calls.items():
        table.add_row(
            name,
            f"{call.known} of {len(LAST_QUESTIONS)}",
            str(call.summaries),
            f"{call.summary_s:.1f} s",
            str(call.largest),
            f"{summarise(call.first_ms).p50:.0f}",
            f"{summarise(call.last_ms).p50:.0f}",
        )
    return table
