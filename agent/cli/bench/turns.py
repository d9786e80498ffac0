"""``rejoinder bench turns``: how often the agent takes a pause for the end of a turn."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rejoinder.agent.bench.cases.recordings import (
    choose,
    speech_folder,
)
from rejoinder.agent.bench.reports import timeline
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.bench.turns import fit as turn_fit
from rejoinder.agent.bench.turns import report as turn_report
from rejoinder.agent.bench.turns import store as turn_store
from rejoinder.agent.cli.options import (
    JsonOption,
    PlotOption,
    SetsOption,
    SpeechOption,
    WhisperOption,
    names_of,
)
from rejoinder.agent.machine import occasion
from rejoinder.pipeline.errors import PipelineError
from rejoinder.pipeline.options import Endpointing

SETS = ",".join(turn_report.TURN_SETS)
"""The default of ``--sets``, with commas."""


def turns(
    limit: Annotated[int | None, typer.Option(min=1, help="total recordings; default: all")] = None,
    sets: SetsOption = SETS,
    stt: WhisperOption = "whisper:tiny.en",
    turn: Annotated[str, typer.Option(help="turn model under test")] = "smart-turn",
    cuda: Annotated[bool, typer.Option("--cuda", help="run the recogniser on the GPU")] = False,
    plot: PlotOption = None,
    keep: Annotated[Path | None, typer.Option(help="write the models' answers to this .json.gz")] = None,
    again: Annotated[
        Path | None,
        typer.Option(exists=True, help="read a file that --keep wrote; ignores --sets, --stt and --cuda"),
    ] = None,
    fit: Annotated[Path | None, typer.Option(help="checkout whose rule to fit to all of it")] = None,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure how often the agent takes a pause for the end of a turn.

    The recordings yield labelled ends and pauses. The real models judge them in sample time. The report
    shows, for each rule, the share of pauses that it cuts off against the time that real ends wait.
    """
    models = {"again": str(again)} if again else {"stt": stt, "turn": turn, "cuda": cuda}
    report: dict[str, Any] = {**occasion(), "models": models}
    console = console_beside(json_file)
    try:
        turn_fit.check()
        if plot:
            timeline.check()
        if fit and not (fit / "pipeline/turns/turn_end.json").is_file():
            raise PipelineError(
                f"{fit} is not a checkout of Rejoinder: it has no pipeline/turns/turn_end.json"
            )
        if keep:
            turn_store.check(keep)
        if again:
            seen = turn_store.read(again)
        else:
            recordings = choose(speech_folder(speech), names_of(sets), limit or sys.maxsize)
            seen = asyncio.run(turn_report.observe_all(recordings, stt, turn, cuda, progress_bar(console)))
        if fit and not turn_fit.can_be_fitted(seen):
            raise PipelineError(
                f"--fit needs ends and pauses of at least {turn_fit.LEAST_SPEAKERS} speakers: add --sets"
            )
        if fit and not any(each.whisper for each in seen):
            raise PipelineError("--fit needs an English Whisper model: set --stt whisper:tiny.en")
    except PipelineError as error:
        leave(error)
    if keep:
        turn_store.write(keep, seen)
    fits = turn_report.fits_for(seen)
    curves = turn_report.curves(seen, fits)
    rule = turn_fit.fused(seen, fits, Endpointing().patience)
    console.print(turn_report.table(seen, rule), *turn_report.notes(curves), sep="\n")
    if plot:
        turn_report.draw(curves, plot)
    if fit:
        turn_fit.fit(seen).write(fit)
        console.print(f"wrote the weights of {len(seen)} pauses and ends into {fit}", soft_wrap=True)
    write(json_file, {**report, **turn_report.report(seen, curves)})
    if json_file:
        typer.echo(json.dumps(turn_report.summary(curves[turn_report.FUSED])))
