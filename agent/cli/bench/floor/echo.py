"""``rejoinder bench echo``: calls in which the loudspeaker's sound reaches the microphone."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from rejoinder.agent.bench import bargein as bench_bargein
from rejoinder.agent.bench import cancellers as bench_cancellers
from rejoinder.agent.bench import echo as bench_echo
from rejoinder.agent.bench.cases import overlap as overlap_cases
from rejoinder.agent.bench.cases.recordings import speech_folder
from rejoinder.agent.bench.reports import timeline
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import JsonOption, PlotOption, SeedOption, SpeechOption, SttOption, TtsOption
from rejoinder.agent.machine import occasion
from rejoinder.agent.server.own_server import own_server
from rejoinder.models.loading import Specs, open_models
from rejoinder.pipeline.errors import PipelineError


def echo(
    minutes: Annotated[
        float, typer.Option(min=0.1, help="minutes of the agent's speech, over all calls")
    ] = 6.0,
    full: Annotated[bool, typer.Option("--full", help="10 minutes")] = False,
    each: Annotated[int, typer.Option(min=0, help="interruptions in each call")] = 3,
    gate: Annotated[bool, typer.Option(help="with the gate that removes the echo")] = True,
    cancellers: Annotated[
        bool,
        typer.Option("--cancellers", help="instead, compare cancellers in sample time, without a server"),
    ] = False,
    seed: SeedOption = 0,
    stt: SttOption = None,
    tts: TtsOption = None,
    plot: PlotOption = None,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure how the agent handles the echo of its own voice.

    Calls run in real time over a WebSocket, four at a time, in three rooms at four levels each. With --json,
    the last line on stdout holds the key figures. With --cancellers, no echo removal, ours and WebRTC's AEC3
    get the same audio, and the report compares what is left of the echo and of the caller's words.
    """
    if cancellers:
        _compare(10.0 if full else minutes, seed, stt, speech, json_file)
        return
    flags = {"llm": bench_bargein.STORYTELLER, "stt": stt, "tts": tts}
    report: dict[str, Any] = {**occasion(), "models": flags, "seed": seed, "gate": gate}
    console = console_beside(json_file)
    try:
        if plot:
            timeline.check()
        folder = speech_folder(speech)
        where = bench_echo.places(folder, seed)
        sounds = (
            overlap_cases.interruptions(folder, overlap_cases.INTERRUPTION_SETS, each * len(where), seed)
            if each
            else []
        )
        seconds = 60 * (10.0 if full else minutes) / len([place for place in where if place.room])
        results = asyncio.run(_through_rooms(flags, where, sounds, seconds, gate, console))
    except PipelineError as error:
        leave(error)
    console.print(bench_echo.table(results))
    if plot:
        bench_echo.draw([("", results)], plot)
    write(json_file, {**report, **bench_echo.report(results)})
    if json_file:
        summary = asdict(bench_echo.summarise(bench_echo.echoes(results)))
        typer.echo(json.dumps({name: summary[name] for name in ("self_interruptions_per_10min", "caught")}))


def _compare(minutes: float, seed: int, stt: str | None, speech: Path | None, json_file: Path | None) -> None:
    console = console_beside(json_file)
    try:
        folder = speech_folder(speech)
        where = [place for place in bench_echo.places(folder, seed) if place.room]
        scripts = bench_cancellers.scripts(folder, where, 60 * minutes / len(where), seed)
        found = asyncio.run(_cancel(scripts, stt or "whisper:tiny.en", console))
        console.print(bench_cancellers.table(found))
    except PipelineError as error:
        leave(error)
    write(json_file, {**occasion(), "seed": seed, "calls": [asdict(each) for each in found]})


async def _cancel(
    scripts: list[bench_cancellers.EchoScript], stt: str, console: Console
) -> list[bench_cancellers.Cancelled]:
    specs = Specs(turn="", stt=stt, llm="scripted:llm", tts="scripted:tts")
    async with open_models(specs) as models:
        with progress_bar(console) as progress:
            task = progress.add_task("cancelling", total=len(scripts) * len(bench_cancellers.CANCELLERS))
            found = []
            for script in scripts:
                for canceller in bench_cancellers.CANCELLERS:
                    found.append(await bench_cancellers.measure(script, canceller, models))
                    progress.advance(task)
            return found


async def _through_rooms(
    flags: dict[str, str | None],
    where: list[bench_echo.Place],
    sounds: list[overlap_cases.OverlapSound],
    seconds: float,
    gate: bool,
    console: Console,
) -> list[bench_echo.EchoResult]:
    async with own_server(flags, console, {"REJOINDER_ECHO_GATE": str(gate).lower()}) as url:
        with progress_bar(console) as progress:
            task = progress.add_task("listening to itself", total=len(where))

            def tell(result: bench_echo.EchoResult) -> None:
                progress.advance(task)
                progress.console.print(Text(f"  {result}", style="dim"))

            return await bench_echo.measure(url, where, sounds, seconds, tell)
