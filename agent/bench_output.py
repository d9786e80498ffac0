"""What all benches share: progress bars, reports, and how they give up."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rejoinder.pipeline.errors import PipelineError


def progress_bar(console: Console) -> Progress:
    """Return a progress bar that is gone when it is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, refresh_per_second=2)


def console_beside(json_file: Path | None) -> Console:
    """Return where tables go: beside a report on stdout they would be in its way."""
    return Console(stderr=json_file == Path("-"))


def write(json_file: Path | None, report: dict[str, Any]) -> None:
    """Write a report, if one is wanted; - is stdout."""
    text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
    if json_file == Path("-"):
        sys.stdout.write(text)
    elif json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(text, encoding="utf-8")


def leave(error: PipelineError) -> NoReturn:
    """End the command with what went wrong."""
    typer.echo(f"error: {error}", err=True)
    raise typer.Exit(1) from None
