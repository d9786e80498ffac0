"""``rejoinder bench attacks``: callers who talk while other clients attack the server."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from rejoinder.agent.bench.attacks import measuring
from rejoinder.agent.bench.reports.output import console_beside, leave, write
from rejoinder.agent.cli.options import JsonOption
from rejoinder.agent.machine import occasion
from rejoinder.agent.server.own_server import own_server
from rejoinder.pipeline.errors import PipelineError


def attacks(
    callers: Annotated[int, typer.Option(min=1, max=200, help="callers who talk")] = 8,
    turns: Annotated[int, typer.Option(min=1, help="turns of each caller in a round")] = 10,
    rounds: Annotated[int, typer.Option(min=1, help="rounds with each attack, and as many without")] = 3,
    share: Annotated[float, typer.Option(min=0.001, max=1.0, help="share of the attackers")] = 1.0,
    json_file: JsonOption = None,
) -> None:
    """Measure answers while other clients attack the server.

    500 clients send the heads of requests byte by byte, 500 connections send nothing, 100 clients connect all
    the time, or 100 clients connect 500 times a second and do not wait. Calls without and with an attack
    alternate. The models are scripted.
    """
    console = console_beside(json_file)
    try:
        found = asyncio.run(_measure(callers, turns, rounds, share))
    except PipelineError as error:
        leave(error)
    pairs = measuring.pooled(found)
    console.print(measuring.table(pairs))
    write(json_file, {**occasion(), "callers": callers, "attacks": measuring.report(pairs)})


async def _measure(callers: int, turns: int, rounds: int, share: float) -> list[measuring.Attacked]:
    async with own_server(measuring.FLAGS, environment=measuring.environment(callers)) as url:
        return await measuring.measure(url, callers, turns, rounds, share)
