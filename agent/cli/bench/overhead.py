"""``rejoinder bench overhead``: what everything but the models costs."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from rejoinder.agent.bench import holds as bench_holds
from rejoinder.agent.bench import overhead as bench_overhead
from rejoinder.agent.bench.cases.worst_messages import WORST
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import JsonOption, numbers_of
from rejoinder.agent.machine import occasion
from rejoinder.pipeline.errors import PipelineError

WAYS = {"session": [bench_overhead.SESSION], "websocket": [bench_overhead.WEBSOCKET]}
WAYS["both"] = WAYS["session"] + WAYS["websocket"]
MESSAGES = "messages"


def overhead(
    sessions: Annotated[
        str, typer.Option(help="how many sessions, one run for each")
    ] = "1,10,50,100,200,500",
    seconds: Annotated[float, typer.Option(min=0.5, help="seconds that are measured in each")] = 5.0,
    way: Annotated[str, typer.Option(help="session, websocket, both, or messages")] = "both",
    vad: Annotated[str, typer.Option(help="voice activity: silero adds what it costs")] = "scripted:vad",
    json_file: JsonOption = None,
) -> None:
    """Measure what everything but the models costs, for many sessions.

    Frames come in real time: into sessions in one process, and over WebSockets to a server in one. Each load
    is run with silent callers, and with a tenth of them speaking and being answered. With --way messages each
    of the messages that cost most is sent to a server of its own, three times, and what is told is for how
    long they held the loop.
    """
    if way == MESSAGES:
        _messages(vad, json_file)
        return
    counts = numbers_of(sessions, "--sessions")
    if way not in WAYS:
        reason = f"{way!r}: write session, websocket or both, or messages"
        raise typer.BadParameter(reason, param_hint="--way")
    console = console_beside(json_file)
    try:
        levels = asyncio.run(_measure(WAYS[way], counts, seconds, vad, console))
    except PipelineError as error:
        leave(error)
    console.print(bench_overhead.table(levels))
    write(
        json_file,
        {**occasion(), "seconds": seconds, "vad": vad, "levels": [asdict(level) for level in levels]},
    )


def _messages(vad: str, json_file: Path | None) -> None:
    """Measure for how long single messages hold the loop."""
    console = console_beside(json_file)
    with progress_bar(console) as progress:
        task = progress.add_task("sending", total=len(WORST))
        try:
            holds = asyncio.run(bench_holds.measure(vad, lambda hold: progress.advance(task)))
        except PipelineError as error:
            leave(error)
    console.print(bench_holds.table(holds))
    write(json_file, {**occasion(), "vad": vad, "holds": [asdict(hold) for hold in holds]})


async def _measure(
    ways: list[str], counts: list[int], seconds: float, vad: str, console: Console
) -> list[bench_overhead.Level]:
    with progress_bar(console) as progress:
        task = progress.add_task("measuring", total=2 * len(ways) * len(counts))

        def tell(level: bench_overhead.Level) -> None:
            progress.advance(task)
            load = f"{level.way}, {level.sessions} sessions, {level.speaking} speaking"
            progress.console.print(Text(f"  {load}: {level.microseconds:.0f} us a frame", style="dim"))

        return await bench_overhead.measure(ways, counts, seconds, vad, tell)
