"""``rejoinder export``: conversations for fine-tuning."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from rejoinder.agent.cli.exporting import Exported, Redaction, examples, preferences
from rejoinder.models.guard.personal_data import PERSONAL_DATA, REGION
from rejoinder.pipeline.errors import PipelineError

app = typer.Typer()


@app.callback()
def group() -> None:
    """Export conversations for fine-tuning."""


@app.command()
def calls(
    trace_file: Annotated[Path, typer.Argument(help="the trace file of a server (setting trace_file)")],
    consented: Annotated[
        bool, typer.Option("--consented", help="export the calls whose callers have consented; required")
    ] = False,
    out: Annotated[
        Path, typer.Option("--out", help="JSON Lines file to write; -: stdout", allow_dash=True)
    ] = Path("-"),
    pairs: Annotated[
        Path | None, typer.Option("--pairs", help="JSON Lines file of preference pairs to write")
    ] = None,
    keep: Annotated[
        str, typer.Option(help=f"personal data to keep, with commas: {', '.join(PERSONAL_DATA)}")
    ] = "",
    region: Annotated[str, typer.Option(help="country of phone numbers without a country code")] = REGION,
) -> None:
    """Write the conversations of consented calls as JSON Lines.

    Each line has messages and tools in the chat format that trainers read. An answer that the caller
    interrupted and corrected makes a preference pair with the answer that followed. Personal data is
    replaced. A call counts as consented if the agent has set call.consent = True.
    """
    console = Console(stderr=True, highlight=False)
    if not consented:
        console.print(
            "[red]error:[/] only calls whose callers have consented can be exported: add --consented"
        )
        raise typer.Exit(2)
    kept = {kind.strip() for kind in keep.split(",") if kind.strip()}
    if unknown := sorted(kept - set(PERSONAL_DATA)):
        raise typer.BadParameter(f"{unknown[0]!r}: write {', '.join(PERSONAL_DATA)}", param_hint="--keep")
    found = Exported()
    try:
        redaction = Redaction([kind for kind in PERSONAL_DATA if kind not in kept], region)
        to_stdout = out == Path("-")
        with (
            trace_file.open("rb") as lines,
            nullcontext(sys.stdout) if to_stdout else out.open("w", encoding="utf-8") as file,
            pairs.open("w", encoding="utf-8") if pairs else nullcontext() as preferred,
        ):
            for example in examples(lines, redaction, found):
                file.write(_line(example))
                for one in preferences(example, found):
                    if preferred:
                        preferred.write(_line(one))
    except (OSError, PipelineError) as error:
        console.print(f"[red]error:[/] {escape(str(error))}")
        raise typer.Exit(1) from None
    console.print(
        f"{found.calls} calls with {found.turns} answers and {found.tool_calls} tool calls; "
        f"{found.corrections} corrections, {found.pairs} preference pairs; "
        f"{found.redacted} places of personal data replaced; "
        f"left out: {found.without_consent} calls without consent, {found.unanswered} without an answer, "
        f"{found.unreadable} unreadable lines"
    )


def _line(example: dict[str, Any]) -> str:
    return json.dumps(example, ensure_ascii=False) + "\n"
