"""``rejoinder bench longcall``: the memory of a long call, and the CPU of an idle call."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console

from rejoinder.agent.bench import interrupted_call as bench_call
from rejoinder.agent.bench.cases.recordings import DEFAULT_SETS, Recording, choose, speech_folder
from rejoinder.agent.bench.process import check_proc
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import JsonOption, LlmOption, SpeechOption, SttOption, TtsOption, TurnOption
from rejoinder.agent.machine import occasion
from rejoinder.agent.server.own_server import own_process
from rejoinder.pipeline.errors import PipelineError


def longcall(
    turns: Annotated[int, typer.Option(min=bench_call.WARM_TURNS + 1, help="turns in one call")] = 200,
    idle: Annotated[float, typer.Option(min=0.1, help="seconds of the idle call")] = 30.0,
    set_: Annotated[str, typer.Option("--set", help="set that holds the recording")] = DEFAULT_SETS[0],
    llm: LlmOption = None,
    stt: SttOption = None,
    tts: TtsOption = None,
    turn: TurnOption = None,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure the memory of a long call, and the CPU of an idle call."""
    flags = {"llm": llm, "stt": stt, "tts": tts, "turn": turn}
    report: dict[str, Any] = {**occasion(), "models": flags}
    console = console_beside(json_file)
    try:
        check_proc()
        recording = bench_call.usual(choose(speech_folder(speech), [set_], sys.maxsize))
        result = asyncio.run(_hold(flags, recording, turns, idle, console))
    except PipelineError as error:
        leave(error)
    console.print(bench_call.table(result))
    write(json_file, {**report, **asdict(result), "ratio": result.ratio, "file": recording.path.name})


async def _hold(
    flags: dict[str, str | None], recording: Recording, turns: int, idle: float, console: Console
) -> bench_call.InterruptedCall:
    async with own_process(flags, console) as (url, process):
        with progress_bar(console) as progress:
            task = progress.add_task("turns", total=turns)

            def tell(turn: int) -> None:
                progress.update(task, completed=turn)

            return await bench_call.hold(url, process, recording, turns, idle, tell)
