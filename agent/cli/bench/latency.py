"""``rejoinder bench`` without a further command: the latency of a whole conversation turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from rejoinder.agent.bench import latency as bench_latency
from rejoinder.agent.bench.cases.recordings import MAX_RECORDING_SECONDS, Recording, choose, speech_folder
from rejoinder.agent.bench.latency import ClipResult
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import check_server, names_of
from rejoinder.agent.machine import occasion
from rejoinder.agent.server.own_server import own_server
from rejoinder.pipeline.errors import PipelineError


def run(
    url: str | None,
    key: str | None,
    clips: int,
    sets: str,
    seed: int,
    flags: dict[str, str | None],
    speech: Path | None,
    json_file: Path | None,
) -> None:
    """Measure the latency, and write the tables and the report. Exits with 1 if no recording is answered.

    flags: options of ``rejoinder serve`` for a server of its own, which this starts if ``url`` is None. The
    other arguments are options of the command.
    """
    check_server(url, flags)
    report: dict[str, Any] = {**occasion(), "url": url, "models": flags, "seed": seed}
    console = console_beside(json_file)
    try:
        names = names_of(sets)
        recordings = choose(speech_folder(speech), names, clips, seed)
        if len(recordings) < clips:
            found = f"found only {len(recordings)} recordings of up to {MAX_RECORDING_SECONDS:.0f} s in"
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
) -> list[ClipResult]:
    results: list[ClipResult] = []
    async with nullcontext(url) if url else own_server(flags, console) as address:
        with progress_bar(console) as progress:
            task = progress.add_task("calling", total=len(recordings))
            for recording in recordings:
                result = await bench_latency.run_clip(address, key, recording)
                results.append(result)
                progress.advance(task)
                progress.console.print(Text(f"  {result}", style="dim"))
    return results
