"""``rejoinder bench warming``: what sending a prompt ahead saves."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from rejoinder.agent.bench.prefix_cache.warming import WarmingTimes, measure_warming, summary
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import JsonOption, SeedOption
from rejoinder.agent.machine import occasion
from rejoinder.agent.simulate.language_model import language_model
from rejoinder.pipeline.errors import PipelineError


def warming(
    llm: Annotated[str, typer.Option(help="openai:http://HOST/v1#MODEL, or any other language model")],
    rounds: Annotated[int, typer.Option(min=1, help="pairs of prompts")] = 20,
    words: Annotated[int, typer.Option(min=1, help="words of the instructions")] = 900,
    seed: SeedOption = 0,
    json_file: JsonOption = None,
) -> None:
    """Measure what sending a prompt ahead saves.

    While the caller speaks, a server with a prefix cache reads the prompt. Compare servers, or see whether a
    server does it.
    """
    console = console_beside(json_file)
    try:
        times = asyncio.run(_measure(llm, rounds, words, seed, console))
    except PipelineError as error:
        leave(error)
    found = summary(times)
    cold, warmed, ahead = (1000 * found[key] for key in ("cold_s", "warmed_s", "warming_s"))
    console.print(
        f"first token: {cold:.0f} ms, after sending ahead {warmed:.0f} ms ({found['ratio']:.0%}); "
        f"sending ahead took {ahead:.0f} ms (medians of {rounds})"
    )
    write(json_file, {**occasion(), "model": llm, "words": words, **found, "times": [*map(asdict, times)]})


async def _measure(llm: str, rounds: int, words: int, seed: int, console: Console) -> list[WarmingTimes]:
    async with language_model(llm) as model:
        with progress_bar(console) as progress:
            task = progress.add_task("asking", total=rounds)
            return await measure_warming(model, rounds, words, seed, lambda: progress.advance(task))
