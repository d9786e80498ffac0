"""``rejoinder bench turns``: how often the agent takes a pause for the end of a turn."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rejoinder.agent.bench.cases.recordings import choose, speech_folder
from rejoinder.agent.bench.reports import timeline
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.bench.turns import comparison
from rejoinder.agent.bench.turns import fit as turn_fit
from rejoinder.agent.bench.turns import report as turn_report
from rejoinder.agent.bench.turns import store as turn_store
from rejoinder.agent.bench.turns.conditions import CLEAN, CONDITIONS, shared_out, sounds
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


def conditions_of(text: str) -> list[str]:
    """Return the names of conditions in a list. Raises PipelineError for an unknown one."""
    names = names_of(text, "condition", "--conditions")
    for name in names:
        if name not in CONDITIONS:
            raise PipelineError(f"there is no condition {name!r}; the conditions are {', '.join(CONDITIONS)}")
    return names


def turns(
    limit: Annotated[int | None, typer.Option(min=1, help="total recordings; default: all")] = None,
    sets: SetsOption = SETS,
    stt: WhisperOption = "whisper:tiny.en",
    turn: Annotated[str, typer.Option(help="turn model under test")] = "smart-turn",
    cuda: Annotated[bool, typer.Option("--cuda", help="run the recogniser on the GPU")] = False,
    plot: PlotOption = None,
    keep: Annotated[
        Path | None, typer.Option(help="write the models' answers to this file, a .json.gz")
    ] = None,
    again: Annotated[
        list[Path] | None,
        typer.Option(exists=True, help="read a file that --keep wrote; ignores --sets, --stt and --cuda"),
    ] = None,
    conditions: Annotated[
        str,
        typer.Option(help=f"lines; each recording comes over one of them: {', '.join(CONDITIONS)}"),
    ] = CLEAN,
    fit: Annotated[
        Path | None, typer.Option(help="fit the rule to all cases, and write it into this checkout")
    ] = None,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure how often a pause is taken for the end of a turn.

    The recordings yield labelled ends and pauses. The real models judge them in sample time. The report
    shows, for each rule, the share of pauses that it cuts off against the time that real ends wait: by the
    median, and by the mean as eot-bench does.
    """
    models = {"again": " ".join(map(str, again))} if again else {"stt": stt, "turn": turn, "cuda": cuda}
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
            seen = [each for path in again for each in turn_store.read(path)]
        else:
            folder, lines = speech_folder(speech), conditions_of(conditions)
            chosen = choose(folder, names_of(sets), limit or sys.maxsize)
            recordings = [(each, shared_out(each.path.name, lines)) for each in chosen]
            added = sounds(folder, lines) if {*lines} != {CLEAN} else None
            progress = progress_bar(console)
            seen = asyncio.run(turn_report.observe_all(recordings, added, stt, turn, cuda, progress))
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
    rule = turn_fit.fused(seen, fits, Endpointing())
    console.print(turn_report.table(seen, rule), *turn_report.notes(seen, curves), sep="\n")
    console.print(turn_report.points_table(seen, fits))
    compared = comparison.compare(seen, fits)
    console.print(comparison.table(compared))
    if plot:
        turn_report.draw(curves, plot)
    if fit:
        turn_fit.fit(seen).write(fit)
        console.print(f"wrote the weights of {len(seen)} pauses and ends into {fit}", soft_wrap=True)
    found = {**turn_report.report(seen, curves), "comparison": comparison.report(compared)}
    write(json_file, {**report, **found})
    if json_file:
        last = turn_report.summary(curves[turn_report.FUSED]) | comparison.summary(compared)
        typer.echo(json.dumps(last))
