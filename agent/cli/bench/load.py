"""``rejoinder bench load``: measure latency with several callers at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from rejoinder.agent.bench import load as bench_load
from rejoinder.agent.bench.callers.idle import idle_callers
from rejoinder.agent.bench.cases.recordings import DEFAULT_SETS, Recording, choose, speech_folder
from rejoinder.agent.bench.latency import ClipResult
from rejoinder.agent.bench.load import LoadedRecording
from rejoinder.agent.bench.process import check_proc
from rejoinder.agent.bench.reports import timeline
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import (
    JsonOption,
    KeyOption,
    LlmOption,
    PlotOption,
    SeedOption,
    SetsOption,
    SpeechOption,
    SttOption,
    TtsOption,
    TurnOption,
    UrlOption,
    check_server,
    names_of,
    numbers_of,
)
from rejoinder.agent.machine import occasion
from rejoinder.agent.server.own_server import own_process
from rejoinder.pipeline.errors import PipelineError

SETS = ",".join(DEFAULT_SETS)
"""The default of ``--sets``, with commas."""

MAX_RECORDINGS = 64
"""Most recordings that one run takes turns from."""


def load(
    sessions: Annotated[
        str, typer.Option(help="numbers of callers at the same time, one level each")
    ] = "1,2,4,8",
    seconds: Annotated[float, typer.Option(min=1.0, help="seconds in which turns begin, per level")] = 60.0,
    idle: Annotated[int, typer.Option(min=0, help="additional callers that send silence")] = 0,
    url: UrlOption = None,
    key: KeyOption = None,
    sets: SetsOption = SETS,
    seed: SeedOption = 0,
    llm: LlmOption = None,
    stt: SttOption = None,
    tts: TtsOption = None,
    turn: TurnOption = None,
    plot: PlotOption = None,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure latency with several callers at the same time.

    Each caller holds one call and plays a recording every 6 or 7 s, in real time. The schedule does not
    depend on earlier turns. Latency counts from the planned last sample. ``rejoinder plan`` reads the report.
    """
    flags = {"llm": llm, "stt": stt, "tts": tts, "turn": turn}
    check_server(url, flags)
    levels = numbers_of(sessions, "--sessions")
    report: dict[str, Any] = {**occasion(), "url": url, "models": flags, "seed": seed, "idle": idle}
    console = console_beside(json_file)
    try:
        if plot:
            timeline.check()
        if url is None:
            check_proc()
        recordings = choose(speech_folder(speech), names_of(sets), MAX_RECORDINGS, seed)
        measured, idle_cores = asyncio.run(
            measure(url, key, flags, recordings, levels, idle, seconds, console)
        )
    except PipelineError as error:
        leave(error)
    console.print(*bench_load.tables(measured), sep="\n")
    if idle:
        console.print(f"The process of the {idle} idle callers used {idle_cores:.2f} cores.")
        report["idle_cores"] = idle_cores
    if plot:
        bench_load.draw(measured, plot)
    write(json_file, {**report, **bench_load.report(measured)})
    if not any(level.counted.answered for level in measured):
        leave(PipelineError("no turn was answered"))


async def measure(
    url: str | None,
    key: str | None,
    flags: dict[str, str | None],
    recordings: list[Recording],
    levels: list[int],
    idle: int,
    seconds: float,
    console: Console,
) -> tuple[list[bench_load.Level], float]:
    """Return the results of each level, and the cores that the idle callers used.

    url: a server, None to start one with ``flags``. Raises PipelineError. Cancelling ends the calls and the
    server.
    """
    measured = []
    async with _server(url, flags, 4 * max(levels) + idle, console) as (address, process):
        async with idle_callers(address, key, idle) as silent:
            with progress_bar(console) as progress:
                spoken = [LoadedRecording.of(recording) for recording in recordings]
                planned = [bench_load.plan(cycle(spoken), level, seconds) for level in levels]
                turns = sum(len(caller) for callers in planned for caller in callers)
                task = progress.add_task("calling", total=turns)

                def tell(result: ClipResult) -> None:
                    progress.advance(task)
                    progress.console.print(Text(f"  {result}", style="dim"))

                for callers in planned:
                    measured.append(await bench_load.run(address, key, process, callers, idle, tell))
    return measured, silent.cores


@asynccontextmanager
async def _server(
    url: str | None, flags: dict[str, str | None], lines: int, console: Console
) -> AsyncIterator[tuple[str, int | None]]:
    """Yield the address of a server, and its process id if this function started it."""
    if url is not None:
        yield url, None
        return
    async with own_process(flags, console, {"REJOINDER_MAX_SESSIONS": str(lines)}) as (address, process):
        yield address, process
