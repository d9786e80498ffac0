"""Shared by all benches: progress bars, reports, and error exits."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from typer.core import TyperGroup

from rejoinder.pipeline.errors import PipelineError

BENCH_ORDER = (
    "load",
    "models",
    "answers",
    "turns",
    "bargein",
    "interaction",
    "speakers",
    "heard",
    "echo",
    "stt",
    "attacks",
    "faults",
    "soak",
    "longcall",
    "failover",
    "routing",
    "openings",
    "cache",
    "context",
    "guard",
    "overhead",
    "simulate",
)
"""The order in which help lists the benches: what a caller notices most comes first."""


class Benches(TyperGroup):
    """The group of benches. ``--json`` without a file means ``--json -``: the report goes to stdout."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the benches in ``BENCH_ORDER``."""
        return sorted(super().list_commands(ctx), key=BENCH_ORDER.index)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with a dash after each bare ``--json``."""
        return super().parse_args(ctx, with_report(args))


def with_report(args: Sequence[str]) -> list[str]:
    """Return the arguments with a dash after each ``--json`` without a file.

    Typer has no options with an optional value.
    """
    given: list[str] = []
    for word in [*args, "--"]:
        if given[-1:] == ["--json"] and word.startswith("--"):
            given.append("-")
        given.append(word)
    return given[:-1]


def progress_bar(console: Console) -> Progress:
    """Return a progress bar that disappears at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, refresh_per_second=2)


def console_beside(json_file: Path | None) -> Console:
    """Return the console for tables: stderr if the report goes to stdout, otherwise stdout."""
    return Console(stderr=json_file == Path("-"))


def write(json_file: Path | None, report: dict[str, Any]) -> None:
    """Write a report as JSON to a file, or to stdout for "-". Without a file, do nothing."""
    text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
    if json_file == Path("-"):
        sys.stdout.write(text)
    elif json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(text, encoding="utf-8")


def leave(error: PipelineError) -> NoReturn:
    """Print an error and exit with 1."""
    typer.echo(f"error: {error}", err=True)
    raise typer.Exit(1) from None


@contextmanager
def percentages(path: Path, x: str, y: str, longest: float, height: float) -> Iterator[Any]:
    """Yield axes for percentages over 0 to ``longest``, and save them as a PNG after the block."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    yield axes
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_xlim(0, longest)
    axes.set_ylim(0, 100)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path)
