"""``rejoinder plan``: how many machines a number of calls needs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer


def plan(
    calls: Annotated[int, typer.Option(min=1, help="calls at the same time")],
    report: Annotated[
        Path, typer.Option("--from", exists=True, dir_okay=False, help="report of bench load --json")
    ],
    p95: Annotated[
        str, typer.Option(help="95th percentile of latency to stay below: 800ms or 0.8s")
    ] = "800ms",
) -> None:
    """Calculate how many machines a number of calls needs."""
    from rejoinder.agent.bench import plan as planning
    from rejoinder.agent.bench.reports.output import leave

    wanted = milliseconds(p95)
    try:
        known = planning.read_report(json.loads(report.read_text(encoding="utf-8")))
        planned = planning.plan(calls, wanted, known)
    except ValueError:
        raise typer.BadParameter(
            f"{report} is not JSON: name a report of bench load --json", param_hint="--from"
        ) from None
    except planning.NoPlan as error:
        leave(error)
    typer.echo(planning.explained(calls, wanted, known, planned))


def milliseconds(text: str) -> float:
    """Return the milliseconds in a time such as 800ms or 0.8s. Raises BadParameter."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)", text.strip())
    value = float(found[1]) * (1000.0 if found[2] == "s" else 1.0) if found else 0.0
    if not value:
        raise typer.BadParameter(f"{text!r}: write a time as 800ms or 0.8s", param_hint="--p95")
    return value
