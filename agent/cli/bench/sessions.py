"""``rejoinder bench sessions``: how many connected sessions the servers of one machine hold."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.console import Console

from rejoinder.agent.bench.callers.connected import (
    Connected,
    connect_and_measure,
    connected_report,
    connected_table,
    servers,
)
from rejoinder.agent.bench.process import check_proc
from rejoinder.agent.bench.reports.output import console_beside, leave, write
from rejoinder.agent.cli.options import JsonOption, numbers_of
from rejoinder.agent.machine import occasion
from rejoinder.pipeline.errors import PipelineError


def sessions(
    connected: Annotated[
        str, typer.Option(help="sessions that send nothing, one level each")
    ] = "500,1000,2000",
    sending: Annotated[
        str, typer.Option(help='sessions that send silence, one level each; "" for none')
    ] = "100,200,300",
    processes: Annotated[int, typer.Option(min=1, max=64, help="servers")] = 4,
    seconds: Annotated[float, typer.Option(min=1.0, help="length of each level")] = 30.0,
    json_file: JsonOption = None,
) -> None:
    """Measure how many sessions the servers of one machine hold.

    Several servers with scripted models, so this is the cost of sockets and sessions. It counts how late
    their event loops are. The clients share the machine.
    """
    levels = [(level, False) for level in numbers_of(connected, "--connected")]
    levels += [(level, True) for level in numbers_of(sending, "--sending")] if sending else []
    console = console_beside(json_file)
    try:
        check_proc()
        found = asyncio.run(_measure(levels, processes, seconds, console))
    except PipelineError as error:
        leave(error)
    console.print(connected_table(found, processes))
    report = {"processes": processes, "seconds": seconds, "levels": connected_report(found)}
    write(json_file, {**occasion(), **report})


async def _measure(
    levels: list[tuple[int, bool]], processes: int, seconds: float, console: Console
) -> list[Connected]:
    """Measure each level with the same servers. Cancelling ends them."""
    most = -(-max(level for level, _ in levels) // processes)
    found = []
    async with servers(processes, most) as running:
        for level, is_sending in levels:
            with console.status(f"{level} sessions"):
                found.append(await connect_and_measure(running, level, is_sending, seconds))
    return found
