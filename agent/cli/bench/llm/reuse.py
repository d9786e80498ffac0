"""``rejoinder bench reuse``: how much of a prompt is in the KV cache."""

from __future__ import annotations

import asyncio
from functools import reduce
from operator import add
from typing import Annotated

import typer
from rich.console import Console

from rejoinder.agent.bench.prefix_cache.reuse import (
    CALL_LINES,
    NEXT_CALL_LINES,
    TurnReuse,
    measure_reuse,
    report,
    table,
)
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import JsonOption
from rejoinder.agent.config import load
from rejoinder.agent.machine import occasion
from rejoinder.agent.simulate.language_model import language_model
from rejoinder.models.placement import Placement
from rejoinder.pipeline.errors import PipelineError


def reuse(
    llm: Annotated[
        str, typer.Option(help="a language model in this process: ort:MODEL or vllm:MODEL")
    ] = "ort",
    json_file: JsonOption = None,
) -> None:
    """Show how much of each prompt is in the KV cache.

    A call of ten turns, then another one with the same instructions, by the engine's own statistics. The
    table [vllm] of the configuration applies.
    """
    console = console_beside(json_file)
    try:
        turns = asyncio.run(_measure(llm, load({})[0].placement(), console))
    except PipelineError as error:
        leave(error)
    console.print(table(turns))
    total = reduce(add, (one.counts for one in turns))
    console.print(f"{total.cached_share:.0%} of {total.prompt_tokens} prompt tokens were in the cache")
    if total.drafted_tokens:
        console.print(f"{total.accepted_share:.0%} of {total.drafted_tokens} guessed tokens were accepted")
    write(json_file, {**occasion(), "model": llm, "turns": report(turns)})


async def _measure(llm: str, placement: Placement, console: Console) -> list[TurnReuse]:
    async with language_model(llm, placement) as model:
        with progress_bar(console) as progress:
            task = progress.add_task("asking", total=len(CALL_LINES) + len(NEXT_CALL_LINES))
            return await measure_reuse(model, lambda: progress.advance(task))
