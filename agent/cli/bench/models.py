"""``rejoinder bench models``: language models side by side."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rejoinder.agent.bench.answers import models as compared_models
from rejoinder.agent.bench.answers.questions import Half
from rejoinder.agent.bench.cases.recordings import (
    DEFAULT_SETS,
    Recording,
    RecordingsMissing,
    choose,
    speech_folder,
)
from rejoinder.agent.bench.reports.output import console_beside, leave, write
from rejoinder.agent.bench.stt import normaliser
from rejoinder.agent.cli.bench.load import MAX_RECORDINGS, measure
from rejoinder.agent.cli.options import JsonOption, SpeechOption, names_of
from rejoinder.agent.machine import occasion
from rejoinder.models.specs import LANGUAGE_MODELS
from rejoinder.pipeline.errors import PipelineError

MODELS = ",".join(LANGUAGE_MODELS)
"""The default of ``--llm``, with commas."""


CALLERS = [1, 4]
"""Numbers of callers at the same time whose calls are measured."""


def models(
    llm: Annotated[str, typer.Option(help="language models, comma-separated")] = MODELS,
    half: Annotated[Half, typer.Option(help="the half of the questions to ask")] = Half.REPORT,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="seconds of calls per number of callers; 0: no calls")
    ] = 60.0,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Compare language models: answers, speed, memory and calls.

    Each model runs alone. First words are measured with nothing read before (cold), and with all but the last
    two words of the question read while the caller speaks (warm). Calls, with 1 and 4 callers, are those of
    ``bench load``; they need recordings.
    """
    console = console_beside(json_file)
    try:
        normaliser()
        recordings = _recordings(speech, seconds, console)
        found, failed = [], []
        for name in names_of(llm, "language model", "--llm"):
            with console.status(f"measuring {name}"):
                result = compared_models.compare(name, half)
            if isinstance(result, str):
                failed.append(result)
                console.print(result, style="red", markup=False, highlight=False, soft_wrap=True)
                continue
            if recordings:
                calls = measure(None, None, {"llm": name}, recordings, CALLERS, 0, seconds, console)
                levels, _ = asyncio.run(calls)
                result = replace(result, calls=levels)
            found.append(result)
        console.print(*compared_models.tables(found), sep="\n")
        write(json_file, {**occasion(), "half": half, "models": compared_models.report(found)})
        if failed:
            raise PipelineError(f"{len(failed)} of {len(found) + len(failed)} models could not be measured")
    except PipelineError as error:
        leave(error)


def _recordings(speech: Path | None, seconds: float, console: Console) -> list[Recording]:
    if not seconds:
        return []
    try:
        return choose(speech_folder(speech), DEFAULT_SETS, MAX_RECORDINGS)
    except RecordingsMissing as error:
        console.print(f"No calls are measured: {error}", markup=False, highlight=False, soft_wrap=True)
        return []
