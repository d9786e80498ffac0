"""``rejoinder profile``: where a running server spends its time, by py-spy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from rejoinder.agent.cli.views.consoles import complain, wide_console
from rejoinder.models.hints import NotInstalled, install, needing

SPARE_SECONDS = 30.0
"""Longest wait for py-spy beyond the time that it samples: it reads the symbols of all libraries first."""
SHOWN_THREADS = 8
"""Most threads in the table; those that worked the most come first."""
SHOWN_FUNCTIONS = 3
"""Functions in the table for each thread, those in which it was found most often."""


class CannotProfile(Exception):
    """The server cannot be profiled. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class ThreadProfile:
    """What one thread did.

    share: of the time in which it worked. functions: the innermost ones, and how often each was found.
    """

    name: str
    share: float
    functions: Mapping[str, int]


def profile(
    port: Annotated[int, typer.Option(help="port of a server on this machine")] = 8080,
    pid: Annotated[int | None, typer.Option(help="process of the server, in place of its port")] = None,
    seconds: Annotated[int, typer.Option(min=1, max=600, help="time to sample")] = 10,
    rate: Annotated[int, typer.Option(min=1, max=1000, help="samples a second")] = 100,
    out: Annotated[Path, typer.Option(help="file for https://www.speedscope.app")] = Path(
        "profile.speedscope.json"
    ),
) -> None:
    """Show where the threads of a running server spend time.

    The server goes on meanwhile. Exits with 1 if it cannot be sampled.
    """
    try:
        with needing("profile", "rejoinder profile"):
            record(pid or process_of(port), seconds, rate, out)
        threads = list(threads_of(json.loads(out.read_text()), seconds))
    except (CannotProfile, NotInstalled) as error:
        complain(error)
        raise typer.Exit(1) from None
    wide_console().print(table(threads))
    typer.echo(f"The whole profile is in {out}: open it at https://www.speedscope.app")


def process_of(port: int) -> int:
    """Return the process that listens on a port of this machine. Raises CannotProfile."""
    import psutil  # of the extra ``profile``

    listening = [
        connection
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
    ]
    if not listening:
        raise CannotProfile(f"no process listens on port {port}: name the server's --port, or its --pid")
    found = next((connection.pid for connection in listening if connection.pid), None)
    if found is None:
        raise CannotProfile(f"the process on port {port} is another user's: run this as that user")
    return int(found)


def record(pid: int, seconds: int, rate: int, out: Path) -> None:
    """Sample a process with py-spy, which does not stop it, into a file for speedscope.

    Raises CannotProfile.
    """
    program = shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")
    if program is None:
        raise CannotProfile(f"py-spy is not installed; run: {install('profile')}")
    out.unlink(missing_ok=True)
    command = [program, "record", "--nonblocking", "--format", "speedscope", "--output", str(out)]
    command += ["--pid", str(pid), "--duration", str(seconds), "--rate", str(rate)]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + SPARE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise CannotProfile(f"py-spy did not end {SPARE_SECONDS:g} s after the last sample") from None
    if ran.returncode or not out.is_file():
        said = " ".join((ran.stderr or ran.stdout).split())
        hint = ": run it as root, or allow ptrace" if "ermission" in said else ""
        raise CannotProfile(f"py-spy cannot read process {pid}{hint} ({said[:300]})")


def threads_of(speedscope: Mapping[str, Any], seconds: float) -> Iterator[ThreadProfile]:
    """Yield the threads of a speedscope file, the one that worked the most first.

    seconds: the time that was sampled. Format: https://www.speedscope.app/file-format-schema.json.
    """
    frames = [frame["name"] for frame in speedscope["shared"]["frames"]]
    for one in sorted(speedscope["profiles"], key=lambda one: -sum(one["weights"])):
        innermost = Counter(frames[stack[-1]] for stack in one["samples"] if stack)
        yield ThreadProfile(one["name"], sum(one["weights"]) / seconds, innermost)


def table(threads: list[ThreadProfile]) -> Table:
    """Return the threads that worked the most, and the functions in which they were found."""
    shown = Table("thread", "at work", "found most often in", box=None, pad_edge=False)
    for thread in threads[:SHOWN_THREADS]:
        found = sum(thread.functions.values()) or 1
        often = Counter(thread.functions).most_common(SHOWN_FUNCTIONS)
        names = ", ".join(f"{name} {100 * count / found:.0f} %" for name, count in often)
        shown.add_row(Text(thread.name), f"{100 * thread.share:.0f} %", Text(names))
    return shown
