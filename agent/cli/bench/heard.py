"""``rejoinder bench heard``: which words of a cut reply count as heard."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from rejoinder.agent.bench import heard as bench_heard
from rejoinder.agent.bench.cases.recordings import choose, speech_folder
from rejoinder.agent.bench.reports.output import console_beside, leave, write
from rejoinder.agent.cli.options import JsonOption, SeedOption, SpeechOption, TextSetsOption, names_of
from rejoinder.agent.machine import occasion
from rejoinder.pipeline.errors import PipelineError

SETS = ",".join(bench_heard.HEARD_SETS)
"""The default of ``--sets``, with commas."""


def heard(
    cuts: Annotated[int, typer.Option(min=1, help="cut replies per voice")] = 500,
    voices: Annotated[
        str, typer.Option(help="voices, comma-separated")
    ] = "piper:en_US-joe-medium,hibari:heart",
    sets: TextSetsOption = SETS,
    seed: SeedOption = 0,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Check which words count as heard when a reply is cut.

    A forced alignment of the audio is the ground truth. The report compares the voices' own word times with
    words spread by length. With --json, the last line on stdout holds the share off by at most one word.
    """
    report: dict[str, Any] = {**occasion(), "voices": voices, "seed": seed}
    console = console_beside(json_file)
    try:
        recordings = choose(speech_folder(speech), names_of(sets), sys.maxsize, seed)
        found = asyncio.run(bench_heard.measure(names_of(voices), recordings, cuts, seed, console))
    except PipelineError as error:
        leave(error)
    rows = bench_heard.rows(found)
    console.print(bench_heard.table(rows))
    report["rows"] = {name: asdict(row) for name, row in rows.items()}
    write(json_file, {**report, "cuts": [asdict(cut) for cut in found]})
    if json_file:
        typer.echo(json.dumps(bench_heard.summary(rows)))
