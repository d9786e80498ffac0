"""``rejoinder doctor``: what there is, what is missing, and the commands that fix it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rejoinder.agent.checks import Check, check_cache, check_gpu, check_libraries, check_machine
from rejoinder.agent.config import Settings
from rejoinder.agent.model_checks import check_models, check_port

STYLES = {"ok": "green", "missing": "yellow", "broken": "red"}


def examine(settings: Settings) -> list[Check]:
    """Look at everything; takes a few seconds at most and loads no model."""
    return [
        *check_machine(settings),
        check_gpu(),
        *check_libraries(settings),
        check_cache(settings),
        *check_models(settings),
        check_port(settings),
    ]


def problems(checks: Sequence[Check]) -> list[Check]:
    """Return what keeps the configuration from running."""
    return [check for check in checks if check.needed and check.state != "ok"]


def fixes(checks: Sequence[Check]) -> list[str]:
    """Return what to do about the problems, each thing once, in order."""
    return list(dict.fromkeys(check.fix for check in problems(checks) if check.fix))


def as_json(checks: Sequence[Check]) -> str:
    """Return the report as JSON: ``ok``, ``fixes`` and ``checks``."""
    report = {
        "ok": not problems(checks),
        "fixes": fixes(checks),
        "checks": [asdict(check) for check in checks],
    }
    return json.dumps(report, indent=2)


def show(checks: Sequence[Check], console: Console) -> None:
    """Print the report as a table, and below it what to do."""
    table = Table("part", "state", box=None, header_style="bold")
    for heading in ("what there is", "to have it"):
        table.add_column(heading, overflow="fold")  # nothing of a path or a command is left out
    for check in checks:
        unused = check.state == "missing" and not check.needed
        state = Text("not here", "dim") if unused else Text(check.state, STYLES[check.state])
        table.add_row(check.part, state, Text(check.detail), Text(check.fix))
    console.print(table)
    if not problems(checks):
        console.print("\nThis configuration can run.", highlight=False)
        return
    console.print("\nThis configuration cannot run yet. To fix it:", highlight=False)
    for fix in fixes(checks):
        console.print(f"  {fix}", markup=False, highlight=False, soft_wrap=True)


def run(settings: Settings, console: Console, machine_readable: bool = False) -> int:
    """Examine, print and return the exit code: 0 if the configuration can run, else 1."""
    checks = examine(settings)
    if machine_readable:
        print(as_json(checks))
    else:
        show(checks, console)
    return 1 if problems(checks) else 0
