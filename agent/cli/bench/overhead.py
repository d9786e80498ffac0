"""``rejoinder bench overhead``: the cost of everything except the models."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from rejoinder.agent.bench.cases.worst_messages import WORST
from rejoinder.agent.bench.overhead import costs, loop_blocking
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import JsonOption, numbers_of
from rejoinder.agent.machine import occasion
from rejoinder.pipeline.errors import PipelineError

WAYS = {"session": [costs.SESSION], "websocket": [costs.WEBSOCKET]}
"""Choices of ``--way``, with the measurements that each one runs."""
WAYS["both"] = WAYS["session"] + WAYS["websocket"]
MESSAGES = "messages"
"""The choice of ``--way`` that measures single messages."""


def overhead(
    sessions: Annotated[str, typer.Option(help="numbers of sessions, one run each")] = "1,10,50,100,200,500",
    seconds: Annotated[float, typer.Option(min=0.5, help="seconds that each run measures")] = 5.0,
    way: Annotated[str, typer.Option(help="session, websocket, both, or messages")] = "both",
    vad: Annotated[str, typer.Option(help="VAD; silero includes its cost")] = "scripted:vad",
    metrics: Annotated[bool, typer.Option(help="let the server measure itself for Prometheus")] = True,
    conversations: Annotated[str, typer.Option(help="store of conversations, as in the setting")] = "",
    one_in: Annotated[int, typer.Option(min=1, help="sessions for each one that speaks")] = 10,
    processes: Annotated[int, typer.Option(min=1, help="server processes that share the sessions")] = 1,
    muted: Annotated[bool, typer.Option("--muted", help="callers who do not speak send nothing")] = False,
    json_file: JsonOption = None,
) -> None:
    """Measure the cost of everything except the models.

    Frames arrive in real time, into sessions in one process and over WebSockets into one server process. Each
    load runs twice: with silent callers, and with some of them in conversation (with --muted, only so). With
    --processes, several servers share the sessions, each with callers in a process of their own, which send
    frames that are due within 2 ms together.

    With --way messages, the command sends each of the most expensive messages three times to its own server,
    and reports how long the message blocked the event loop.
    """
    if way == MESSAGES:
        _messages(vad, json_file)
        return
    counts = numbers_of(sessions, "--sessions")
    if way not in WAYS:
        reason = f"{way!r}: write session, websocket, both or messages"
        raise typer.BadParameter(reason, param_hint="--way")
    fewest = costs.speakers(min(counts), True, one_in) if muted else min(counts)
    if processes > 1 and (way != "websocket" or fewest < processes):
        reason = "several processes need --way websocket and a session that sends each"
        raise typer.BadParameter(reason, param_hint="--processes")
    console = console_beside(json_file)
    try:
        settings = {"metrics": metrics, "conversations": conversations}
        loads = (WAYS[way], counts, seconds, vad, settings, one_in, processes, muted)
        levels = asyncio.run(_measure(*loads, console))
    except PipelineError as error:
        leave(error)
    console.print(costs.table(levels))
    write(
        json_file,
        {
            **occasion(),
            "seconds": seconds,
            "vad": vad,
            "metrics": metrics,
            "conversations": conversations.partition(":")[0],
            "one_in": one_in,
            "processes": processes,
            "muted": muted,
            "levels": [asdict(level) for level in levels],
        },
    )


def _messages(vad: str, json_file: Path | None) -> None:
    """Measure how long single messages block the event loop."""
    console = console_beside(json_file)
    with progress_bar(console) as progress:
        task = progress.add_task("sending", total=len(WORST))
        try:
            blocked = asyncio.run(loop_blocking.measure(vad, lambda cost: progress.advance(task)))
        except PipelineError as error:
            leave(error)
    console.print(loop_blocking.table(blocked))
    write(json_file, {**occasion(), "vad": vad, "holds": [asdict(cost) for cost in blocked]})


async def _measure(
    ways: list[str],
    counts: list[int],
    seconds: float,
    vad: str,
    settings: Mapping[str, object],
    one_in: int,
    processes: int,
    muted: bool,
    console: Console,
) -> list[costs.Overhead]:
    with progress_bar(console) as progress:
        task = progress.add_task("measuring", total=(1 if muted else 2) * len(ways) * len(counts))

        def tell(level: costs.Overhead) -> None:
            progress.advance(task)
            load = f"{level.way}, {level.sessions} sessions, {level.speaking} speaking"
            progress.console.print(Text(f"  {load}: {level.microseconds:.0f} us a frame", style="dim"))

        return await costs.measure(ways, counts, seconds, vad, tell, settings, one_in, processes, muted)
