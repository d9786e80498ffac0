"""``rejoinder bench openings``: what first words gain while an answer is late, and how it goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from rejoinder.agent.bench.answers.ask import of_half
from rejoinder.agent.bench.answers.questions import Half, read
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.bench.routing.openings import Join, faults_of, joins, percentiles, waits
from rejoinder.agent.bench.stt import normaliser
from rejoinder.agent.cli.options import JsonOption
from rejoinder.agent.machine import occasion
from rejoinder.models.llm.routing.difficulty import judge
from rejoinder.pipeline.errors import PipelineError

PHRASES = ("Sure, let me look at that,", "Okay, let me see,", "That is a good question.")
"""The openings without any of the user's."""
MOST_OPENINGS = 8
"""Most openings with a row of their own."""


def openings(
    llm: Annotated[str, typer.Option(help="the answering language model, for the joins")] = "medium",
    opener: Annotated[str, typer.Option(help="small model that writes the openings; empty: none")] = "",
    opening: Annotated[list[str] | None, typer.Option(help="first words; may be given several times")] = None,
    late: Annotated[float, typer.Option(min=0.0, help="seconds to the first word of the late model")] = 1.2,
    after: Annotated[float, typer.Option(min=0.0, help="as the setting opening_after_s")] = 0.3,
    pairs: Annotated[int, typer.Option(min=2, help="replies of each server")] = 30,
    half: Annotated[Half, typer.Option(help="the half of the questions to ask")] = Half.BOTH,
    json_file: JsonOption = None,
) -> None:
    """Measure first words while the answer is late.

    A server with openings and one without answer in turn; their language model is a chat server whose first
    word is late. Then a model goes on behind an opening for each of the hard questions of ``bench answers``,
    and rules look whether both read as one sentence.
    """
    console = console_beside(json_file)
    phrases = opening or PHRASES
    questions = [one for one in of_half(read(), half) if judge(one.turns[-1]) == "hard"]
    try:
        with progress_bar(console) as progress:
            task = progress.add_task("measuring", total=pairs + len(questions))

            def done() -> None:
                progress.advance(task)

            found = asyncio.run(waits(pairs, late, after, phrases, done))
            joined = asyncio.run(joins(llm, opener, phrases, questions, normaliser(), done))
    except PipelineError as error:
        leave(error)
    show(console, found, joined)
    report = {**occasion(), "llm": llm, "opener": opener, "openings": list(phrases), "late_s": late}
    report |= {"after_s": after, "half": half, "waits_ms": found, "joins": [asdict(one) for one in joined]}
    write(json_file, report)


def _joins(joined: list[Join]) -> Table:
    table = Table("opening", title="Joins", title_justify="left", box=None)
    for name in ("answers", "one sentence", "right", "right without it"):
        table.add_column(name, justify="right")
    written = Counter(one.opening for one in joined)
    for opening, _ in written.most_common(MOST_OPENINGS):
        table.add_row(opening, *_counts([one for one in joined if one.opening == opening]))
    if len(written) > 1:
        table.add_row("all", *_counts(joined))
    return table


def _counts(joined: list[Join]) -> tuple[str, ...]:
    good, right = sum(not one.faults for one in joined), sum(one.right for one in joined)
    return str(len(joined)), str(good), str(right), str(sum(one.alone for one in joined))


def show(console: Console, found: list[tuple[float, float]], joined: list[Join]) -> None:
    """Print both tables."""
    table = Table("", title="First audio, ms", title_justify="left", box=None)
    for name in ("p50", "p95", "p99"):
        table.add_column(name, justify="right")
    for row, values in zip(("without openings", "with openings"), percentiles(found), strict=True):
        table.add_row(row, *(f"{value:.0f}" for value in values))
    console.print(table)
    console.print(_joins(joined))
    for fault, times in faults_of(joined).most_common():
        console.print(f"  {fault}: {times}")
