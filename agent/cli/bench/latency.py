"""``rejoinder bench``: the latency of a whole conversation turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from rejoinder.agent.bench import latency as bench_latency
from rejoinder.agent.bench.cases.recordings import (
    DEFAULT_SETS,
    MAX_SECONDS,
    Recording,
    choose,
    speech_folder,
)
from rejoinder.agent.bench.latency import Result
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import (
    JsonOption,
    LlmOption,
    SpeechOption,
    SttOption,
    TtsOption,
    TurnOption,
    check_url,
    names_of,
)
from rejoinder.agent.machine import occasion
from rejoinder.agent.server.own_server import own_server
from rejoinder.pipeline.errors import PipelineError


def latency(
    context: typer.Context,
    url: Annotated[str | None, typer.Option(help="ws://… of a running server; default: start one")] = None,
    key: Annotated[str | None, typer.Option(help="bearer token for --url", envvar="REJOINDER_KEY")] = None,
    clips: Annotated[int, typer.Option(min=1, help="recordings to play")] = 44,
    sets: Annotated[str, typer.Option(help="sets of recordings, comma-separated")] = ",".join(DEFAULT_SETS),
    seed: Annotated[int, typer.Option(help="seed of the choice of recordings")] = 0,
    llm: LlmOption = None,
    stt: SttOption = None,
    tts: TtsOption = None,
    turn: TurnOption = None,
    profile: Annotated[str | None, typer.Option(help="cpu-small, cpu, gpu or gpu-large")] = None,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure the time from the last sample of speech to the first audible sample of the answer.

    Each recording of a person plays in real time, in its own call. The first audible sample is the first
    above -50 dBFS, at the moment when a client without a buffer plays it.
    """
    if context.invoked_subcommand is not None:
        return
    flags = {"llm": llm, "stt": stt, "tts": tts, "turn": turn, "profile": profile}
    if url is not None:
        check_url(url)
        if any(value is not None for value in flags.values()):
            raise typer.BadParameter("models cannot be chosen for a running server: omit them, or omit --url")
    report: dict[str, Any] = {**occasion(), "url": url, "models": flags, "seed": seed}
    console = console_beside(json_file)
    try:
        names = names_of(sets)
        recordings = choose(speech_folder(speech), names, clips, seed)
        if len(recordings) < clips:
            found = f"found only {len(recordings)} recordings of up to {MAX_SECONDS:.0f} s in"
            console.print(f"{found} {', '.join(names)}; playing all of them", highlight=False)
        results = asyncio.run(_measure(url, key, flags, recordings, console))
    except PipelineError as error:
        leave(error)
    for part in bench_latency.tables(results):
        console.print(part)
    write(json_file, {**report, **bench_latency.report(results)})
    if reason := bench_latency.nothing_answered(results):
        leave(PipelineError(reason))


async def _measure(
    url: str | None,
    key: str | None,
    flags: dict[str, str | None],
    recordings: Sequence[Recording],
    console: Console,
) -> list[Result]:
    results: list[Result] = []
    async with nullcontext(url) if url else own_server(flags, console) as address:
        with progress_bar(console) as progress:
            task = progress.add_task("calling", total=len(recordings))
            for recording in recordings:
                result = await bench_latency.run_clip(address, key, recording)
                results.append(result)
                progress.advance(task)
                progress.console.print(Text(f"  {result}", style="dim"))
    return results
