"""``rejoinder bench routing``: what rules and openings save, in money and in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.bench.reports.waterfall import summarise
from rejoinder.agent.bench.routing.live import (
    EASY_QUESTIONS,
    HARD_QUESTIONS,
    INPUT_PRICE,
    OUTPUT_PRICE,
    WayResult,
    compare,
    ways,
    words_of_joins,
)
from rejoinder.agent.cli.options import JsonOption, TtsOption
from rejoinder.agent.config import load
from rejoinder.agent.language_models import TOYS
from rejoinder.agent.machine import occasion
from rejoinder.agent.simulate.language_model import language_model
from rejoinder.pipeline.errors import PipelineError


def routing(
    rounds: Annotated[int, typer.Option(min=1, max=100, help="times that each question is asked")] = 2,
    delay_ms: Annotated[
        int, typer.Option(min=0, max=20_000, help="time to the large model's first word")
    ] = 1200,
    big: Annotated[str, typer.Option(help="spec of the model that writes the large model's words")] = TOYS[0],
    small: Annotated[str, typer.Option(help="spec of the small model")] = TOYS[0],
    opening: Annotated[bool, typer.Option(help="let the small model open; otherwise phrases only")] = True,
    tts: TtsOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure the cost and the latency of rules and openings.

    They are compared with a large model that answers everything. Each question is typed in a call of its own.
    The large model is a chat server on loopback with a stated delay; a model in this process writes its
    words. The small one runs in the server.
    """
    console = console_beside(json_file)
    try:
        voice = tts or load({})[0].tts
        results = asyncio.run(_measure(rounds, delay_ms / 1000.0, big, small, opening, voice, console))
    except PipelineError as error:
        leave(error)
    console.print(_table(results))
    joins, good, faults = words_of_joins(results)
    found = ", ".join(f"{fault} {count}" for fault, count in faults.items()) or "none"
    console.print(f"joins in which no rule finds a fault: {good} of {joins}; faults: {found}")
    prices = {"input": INPUT_PRICE, "output": OUTPUT_PRICE}
    asked = {"delay_ms": delay_ms, "big": big, "small": small, "opening": opening, "prices": prices}
    report: dict[str, Any] = {**occasion(), **asked, "ways": [asdict(result) for result in results]}
    write(json_file, report)


async def _measure(
    rounds: int, delay_s: float, big: str, small: str, opening: bool, voice: str, console: Console
) -> list[WayResult]:
    opener = "small" if opening else ""
    total = len(ways(opener)) * rounds * (len(EASY_QUESTIONS) + len(HARD_QUESTIONS))
    async with language_model(big) as llm:
        with progress_bar(console) as progress:
            task = progress.add_task("asking", total=total)
            return await compare(llm, small, voice, delay_s, rounds, opener, lambda: progress.advance(task))


def _table(results: Sequence[WayResult]) -> Table:
    table = Table("way", "answered by big", "requests to big", "cost of 1,000 questions", "first audio p50",
                  "p95", title="Routing", box=None)  # fmt: skip
    for result in results:
        took = summarise(result.first_audio_ms)
        table.add_row(
            result.name,
            f"{result.by_big} of {took.count}",
            str(result.requests),
            f"{1000.0 * result.cost / max(took.count, 1):.3f}",
            f"{took.p50:.0f} ms",
            f"{took.p95:.0f} ms",
        )
    return table
