"""``rejoinder bench kills``: whether conversations go on after the server was killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from rejoinder.agent.bench import balancing
from rejoinder.agent.bench import kills as bench_kills
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import JsonOption
from rejoinder.agent.machine import occasion
from rejoinder.agent.server.own_server import free_port, own_process
from rejoinder.pipeline.errors import PipelineError

SCRIPTED_FLAGS = {
    "llm": bench_kills.KILLED_LLM,
    "stt": "scripted:stt|what is the weather",
    "tts": "scripted:tts",
    "turn": "scripted:turn",
}
"""The models of the server."""


def kills(
    times: Annotated[int, typer.Option(min=1, help="how often the server is killed")] = 50,
    calls: Annotated[int, typer.Option(min=1, max=100, help="calls at each kill")] = 4,
    seed: Annotated[int, typer.Option(help="chooses the moments")] = 0,
    store: Annotated[str, typer.Option(help="where conversations are kept; empty: a temporary file")] = "",
    balancer: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="HAProxy's configuration: kill one of two servers"),
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Kill the server in mid-reply, and check that clients go on."""
    console, dice = console_beside(json_file), random.Random(seed)
    try:
        if balancer:
            returns = asyncio.run(_kills_behind(balancer, times, calls, dice, store, console))
            shown = balancing.balanced_table(returns)
        else:
            returns = asyncio.run(_kills(times, calls, dice, store, console))
            shown = bench_kills.table(returns)
    except PipelineError as error:
        leave(error)
    console.print(shown)
    for wrong in filter(None, (one.wrong for one in returns)):
        console.print(f"wrong: {wrong}", markup=False)
    report: dict[str, Any] = {**occasion(), "times": times, "calls": calls, "balancer": balancer is not None}
    write(json_file, {**report, "returns": [asdict(one) for one in returns]})
    if any(one.wrong for one in returns):
        raise typer.Exit(1)


async def _kills(
    times: int, calls: int, dice: random.Random, store: str, console: Console
) -> list[bench_kills.Return]:
    returns: list[bench_kills.Return] = []
    with tempfile.TemporaryDirectory() as folder, progress_bar(console) as progress:
        environment = _environment(store, folder)
        task = progress.add_task("kills", total=times)
        for number in range(times):
            returns += await _kill(calls, dice, environment)
            progress.update(task, completed=number + 1)
    return returns


def _environment(store: str, folder: str) -> dict[str, str]:
    kept = store or f"sqlite:{Path(folder, 'conversations.db')}"
    return {"REJOINDER_CONVERSATIONS": kept, "REJOINDER_VAD": "scripted:vad"}


async def _kills_behind(
    file: Path, times: int, calls: int, dice: random.Random, store: str, console: Console
) -> list[bench_kills.Return]:
    """Kill one of two servers again and again. The killed one is started again before the next kill."""
    returns: list[bench_kills.Return] = []
    with tempfile.TemporaryDirectory() as folder, progress_bar(console) as progress:
        environment = _environment(store, folder)
        task = progress.add_task("kills", total=times)
        async with AsyncExitStack() as stack:
            servers = [
                await stack.enter_async_context(RestartingServer(environment)) for _ in balancing.SERVER_NAMES
            ]
            ports = [server.port for server in servers]
            balancer = await stack.enter_async_context(balancing.balancing(file, ports))
            for number in range(times):
                await balancer.until_all_ready()
                victim = dice.choice(servers)
                returns += await balancing.kill_one(balancer.port, calls, victim.kill, dice)
                await victim.start()
                progress.update(task, completed=number + 1)
    return returns


async def _kill(calls: int, dice: random.Random, environment: dict[str, str]) -> list[bench_kills.Return]:
    async with RestartingServer(environment) as server:
        return await bench_kills.kill_once(server.port, calls, server.kill, server.start, dice)


class RestartingServer:
    """A server of this machine that is killed and started again on the same port.

    environment: its variables. Cancelling ``start`` leaves it ended.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self.port = free_port()
        self._environment = environment
        self._running = AsyncExitStack()
        self._process = 0

    async def __aenter__(self) -> RestartingServer:
        """Start it. Cancelling leaves it ended."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it. Cancelling kills it."""
        await self._running.aclose()

    async def start(self) -> None:
        """Start it, and wait until it is ready. Raises ServerFailed. Cancelling leaves it ended."""
        serving = own_process(SCRIPTED_FLAGS, environment=self._environment, port=self.port)
        _, self._process = await self._running.enter_async_context(serving)

    async def kill(self) -> None:
        """Kill it by SIGKILL, and wait for its end. Cancelling stops waiting."""
        os.kill(self._process, signal.SIGKILL)
        await self._running.aclose()
