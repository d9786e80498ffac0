"""``rejoinder bench bargein``: how soon the agent stops when a caller interrupts it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from rejoinder.agent.bench import bargein as bench_bargein
from rejoinder.agent.bench.cases import overlap as overlap_cases
from rejoinder.agent.bench.cases.recordings import (
    speech_folder,
)
from rejoinder.agent.bench.reports import timeline
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import (
    JsonOption,
    PlotOption,
    SeedOption,
    SetsOption,
    SpeechOption,
    SttOption,
    TtsOption,
    names_of,
)
from rejoinder.agent.machine import occasion
from rejoinder.agent.server.own_server import own_server
from rejoinder.pipeline.errors import PipelineError

SETS = ",".join(overlap_cases.INTERRUPTION_SETS)
"""The default of ``--sets``, with commas."""


def bargein(
    count: Annotated[int, typer.Option(min=1, help="interruptions")] = 40,
    false: Annotated[int, typer.Option(min=0, help="false interruptions of each kind")] = 30,
    sets: SetsOption = SETS,
    voices: Annotated[
        str, typer.Option(help="voices that say mm-hm")
    ] = "hibari:heart,piper:en_US-joe-medium",
    seed: SeedOption = 0,
    stt: SttOption = None,
    tts: TtsOption = None,
    plot: PlotOption = None,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure how soon the agent stops for an interruption.

    Also measures how soon it goes on after a false interruption: a spoken backchannel, a synthetic cough or
    noise. Calls run in real time over a WebSocket. With --json, the last line on stdout holds the three key
    figures.
    """
    flags = {"llm": bench_bargein.STORYTELLER, "stt": stt, "tts": tts}
    report: dict[str, Any] = {**occasion(), "models": flags, "seed": seed, "voices": voices}
    console = console_beside(json_file)
    try:
        if plot:
            timeline.check()
        folder = speech_folder(speech)
        sounds = overlap_cases.interruptions(folder, names_of(sets), count, seed)
        sounds += overlap_cases.coughs(false, seed) + overlap_cases.noises(folder, false, seed)
        results = asyncio.run(_over_the_agent(flags, sounds, names_of(voices), false, seed, console))
    except PipelineError as error:
        leave(error)
    console.print(bench_bargein.table(results))
    if plot:
        bench_bargein.draw(results, plot)
    write(json_file, {**report, **bench_bargein.report(results)})
    if json_file:
        summary = asdict(bench_bargein.summarise(results))
        typer.echo(json.dumps({name: summary[name] for name in ("stop_p50_ms", "stop_p95_ms", "resumed")}))


async def _over_the_agent(
    flags: dict[str, str | None],
    sounds: list[overlap_cases.OverlapSound],
    voices: list[str],
    false: int,
    seed: int,
    console: Console,
) -> list[bench_bargein.BargeinResult]:
    if false:
        sounds = sounds + await overlap_cases.backchannels(voices, false, seed)
    async with own_server(flags, console) as url:
        with progress_bar(console) as progress:
            task = progress.add_task("speaking over the agent", total=len(sounds))

            def tell(result: bench_bargein.BargeinResult) -> None:
                progress.advance(task)
                progress.console.print(Text(f"  {result}", style="dim"))

            return await bench_bargein.measure(url, sounds, seed, tell)
