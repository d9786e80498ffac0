"""``rejoinder doctor``: what is installed, what is missing, and the commands that fix it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from rejoinder.agent.cli.doctor.files import check_files
from rejoinder.agent.cli.doctor.machine import Check, check_cache, check_gpu, check_libraries, check_machine
from rejoinder.agent.cli.doctor.models import check_guard, check_models, check_port
from rejoinder.agent.config import Settings

STYLES = {"ok": "green", "missing": "yellow", "broken": "red"}
"""The colour of each state of a check."""
PART = 16
"""Width of the first column of the report, in characters."""
STATE = 10
"""Width of the second column, in characters."""
LEAST_ROOM = 20
"""Least width of the details, even on a narrower terminal."""


def examine(settings: Settings) -> list[Check]:
    """Run all checks. Takes at most a few seconds and loads no model."""
    return [
        *check_machine(settings),
        check_gpu(),
        *check_libraries(settings),
        check_cache(settings),
        *check_models(settings),
        *check_guard(settings),
        *check_files(settings),
        check_port(settings),
    ]


def problems(checks: Sequence[Check]) -> list[Check]:
    """Return the failed checks that keep the configuration from running."""
    return [check for check in checks if check.needed and check.state != "ok"]


def fixes(checks: Sequence[Check]) -> list[str]:
    """Return the fixes of the problems, in order and without duplicates."""
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
    """Print the report, then the fixes.

    Each path and command is on its own line and is never wrapped, so that users can copy it.
    """
    console.print(f" {'part':<{PART}}{'state':<{STATE}}what there is", style="bold", highlight=False)
    for check in checks:
        for line in lines_about(check, console.width):
            console.print(line, soft_wrap=True)
    if not problems(checks):
        console.print("\nThis configuration can run.", highlight=False)
        return
    console.print("\nThis configuration cannot run yet. To fix it:", highlight=False)
    for fix in fixes(checks):
        console.print(f"  {fix}", markup=False, highlight=False, soft_wrap=True)


def lines_about(check: Check, width: int) -> Iterator[Text]:
    """Yield the lines about one check; details are wrapped to ``width`` characters."""
    unused = check.state == "missing" and not check.needed
    state, style = ("not here", "dim") if unused else (check.state, STYLES[check.state])
    room = max(width - PART - STATE - 1, LEAST_ROOM)
    first, *others = textwrap.wrap(check.detail, room, break_long_words=False, break_on_hyphens=False) or [""]
    yield Text.assemble(f" {check.part:<{PART}}", (f"{state:<{STATE}}", style), first)
    for words in others:
        yield Text(" " * (PART + STATE + 1) + words)
    for alone in filter(None, (check.path, check.fix)):
        yield Text(f"    {alone}", "bold" if alone == check.fix else "")


def run(settings: Settings, console: Console, machine_readable: bool = False) -> int:
    """Run all checks, print the report, and return 0 if the configuration can run, else 1."""
    checks = examine(settings)
    if machine_readable:
        print(as_json(checks))
    else:
        show(checks, console)
    return 1 if problems(checks) else 0
