"""``rejoinder bench routing``: what rules for language models save, and what they cost in right answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rejoinder.agent.bench.answers.ask import of_half
from rejoinder.agent.bench.answers.questions import Half, Question, read
from rejoinder.agent.bench.answers.rules import Normalise
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.bench.reports.waterfall import ms
from rejoinder.agent.bench.routing.compare import (
    SMALL,
    JudgedAnswer,
    WayFigures,
    answers_of,
    router_ms,
    ways,
)
from rejoinder.agent.bench.stt import normaliser
from rejoinder.agent.cli.options import JsonOption
from rejoinder.agent.config import load
from rejoinder.agent.machine import occasion
from rejoinder.models.llm.routing.settings import RouteSettings
from rejoinder.pipeline.errors import PipelineError

DEFAULT_RULES = [{"model": SMALL, "difficulty": "easy"}]
"""The rules without a configuration file."""


def routing(
    big: Annotated[str, typer.Option(help="the large language model")] = "medium",
    small: Annotated[str, typer.Option(help="the small language model")] = "small",
    price: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="of a token of the small model, as a share of the large one's"),
    ] = 0.33,
    rules: Annotated[
        Path | None, typer.Option(help="TOML file with [[routes]], whose rules name the small model")
    ] = None,
    half: Annotated[Half, typer.Option(help="the half of the questions to ask")] = Half.BOTH,
    json_file: JsonOption = None,
) -> None:
    """Compare rules with always a large or a small model.

    Both models answer the everyday questions of ``bench answers``; the rules then choose between the answers.
    Words, time of day and difficulty count in them; without tools, keys and load.
    """
    console = console_beside(json_file)
    try:
        chosen = _rules(rules)
        questions, normalise = of_half(read(), half), normaliser()
        both = asyncio.run(_ask((big, 1.0), (small, price), questions, normalise, console))
    except PipelineError as error:
        leave(error)
    found, took = ways(*both, chosen), router_ms(questions, chosen)
    console.print(_table(found))
    console.print(f"a decision takes {took.p50:.3f} ms, p95 {took.p95:.3f} ms")
    report: dict[str, Any] = {**occasion(), "big": big, "small": small, "price": price, "half": half}
    report |= {"rules": [rule.conditions for rule in chosen], "router_ms": asdict(took)}
    write(json_file, {**report, "ways": [asdict(one) for one in found], "answers": _answers(*both)})


def _rules(file: Path | None) -> list[RouteSettings]:
    """Return the rules of a file; all that choose another model than the first one choose the small one."""
    if file is None:
        return [RouteSettings.model_validate(rule) for rule in DEFAULT_RULES]
    routes = load({}, file)[0].routes
    return [rule.model_copy(update={"model": SMALL}) for rule in routes]


async def _ask(
    big: tuple[str, float],
    small: tuple[str, float],
    questions: Sequence[Question],
    normalise: Normalise,
    console: Console,
) -> tuple[list[JudgedAnswer], list[JudgedAnswer]]:
    with progress_bar(console) as progress:
        task = progress.add_task("asking", total=2 * len(questions))

        def done() -> None:
            progress.advance(task)

        ours = await answers_of(*big, questions, normalise, done)
        return ours, await answers_of(*small, questions, normalise, done)


def _answers(big: Sequence[JudgedAnswer], small: Sequence[JudgedAnswer]) -> list[dict[str, Any]]:
    return [
        {
            "kind": ours.asked.question.kind,
            "half": ours.asked.question.half,
            "asked": list(ours.asked.question.turns),
            "big": {"right": ours.right, "cost": ours.cost, "said": ours.asked.text},
            "small": {"right": theirs.right, "cost": theirs.cost, "said": theirs.asked.text},
        }
        for ours, theirs in zip(big, small, strict=True)
    ]


def _table(found: Sequence[WayFigures]) -> Table:
    table = Table("", title="Routing", title_justify="left", box=None)
    for name in ("by small", "right", "of big's", "cost", "first word p50 ms", "p95", "whole p50 ms", "p95"):
        table.add_column(name, justify="right")
    for one in found:
        shares = (f"{100.0 * one.kept:.0f} %", f"{100.0 * one.cost:.0f} %")
        times = (one.first.p50, one.first.p95, one.whole.p50, one.whole.p95)
        counts = (f"{one.by_small} of {one.asked}", str(one.right))
        table.add_row(one.name, *counts, *shares, *map(ms, times))
    return table
