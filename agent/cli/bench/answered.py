"""``rejoinder bench answered``: who is taken to have answered an outgoing call."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.pretty import Pretty
from rich.text import Text

from rejoinder.agent.bench.answered import calls as bench_calls
from rejoinder.agent.bench.answered import greetings as bench_greetings
from rejoinder.agent.bench.answered import report as bench_report
from rejoinder.agent.bench.answered.calls import AnsweredCall
from rejoinder.agent.bench.answered.greetings import Greeting
from rejoinder.agent.bench.cases.recordings import speech_folder
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import JsonOption, SeedOption, SpeechOption, names_of
from rejoinder.agent.machine import occasion
from rejoinder.agent.simulate import virtual_clock
from rejoinder.pipeline.errors import PipelineError

JUDGES = "flite:slt,flite:rms,flite:awb"
"""The default of ``--voices``: none of them was used to choose a rule."""
SETS = "an4_more,speechocean762_more,phone_conversations,ljspeech"
"""The default of ``--sets``: speakers that were not used to choose a rule."""

ANSWER_KINDS = "human,voicemail,ivr,unavailable"
"""The default of ``--kinds``: all."""


def answered(
    voices: Annotated[
        str, typer.Option(help="voices, comma-separated; NAME*0.9 is lower and slower")
    ] = JUDGES,
    use: Annotated[
        str, typer.Option(help="judge, or fit: the texts with which the rules were chosen")
    ] = "judge",
    sets: Annotated[str, typer.Option(help="sets of recorded people, comma-separated")] = SETS,
    only: Annotated[str, typer.Option(help="voices or recordings; default: both")] = "",
    kinds: Annotated[str, typer.Option(help="who answers, comma-separated")] = ANSWER_KINDS,
    seed: SeedOption = 0,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure who is taken to have answered an outgoing call.

    Greetings of people, mailboxes, menus and announcements, over a telephone line with noise, in virtual time
    with real listening models. Mailboxes get a message. With --json, the last line on stdout holds the key
    figures.
    """
    report: dict[str, Any] = {
        **occasion(),
        "voices": voices,
        "use": use,
        "sets": sets,
        "kinds": kinds,
        "seed": seed,
    }
    console = console_beside(json_file)
    try:
        if use not in ("judge", "fit"):
            raise PipelineError(f"--use is {use!r}: it must be judge or fit")
        if only not in ("", "voices", "recordings"):
            raise PipelineError(f"--only is {only!r}: it must be voices or recordings")
        folder = speech_folder(speech)
        greetings = asyncio.run(_greetings(folder, use, names_of(voices), names_of(sets), only, seed))
        greetings = [greeting for greeting in greetings if greeting.kind in names_of(kinds)]
        if not greetings:
            raise PipelineError(f"--kinds is {kinds!r}: it must name some of {ANSWER_KINDS}")
        found = virtual_clock.run(_through(greetings, console))
    except PipelineError as error:
        leave(error)
    console.print(bench_report.confusion(found))
    summary = bench_report.summary(found)
    console.print(Pretty(summary))
    write(json_file, {**report, **summary, "calls": [asdict(call) for call in found]})
    if json_file:
        typer.echo(json.dumps({name: summary[name] for name in ("humans_kept", "machines_caught")}))


async def _greetings(
    folder: Path, use: str, voices: list[str], sets: list[str], only: str, seed: int
) -> list[Greeting]:
    noises, found = bench_greetings.noises(folder), list[Greeting]()
    if only != "recordings":
        found += await bench_greetings.synthesised(use, voices, noises, seed)
    if only != "voices":
        found += bench_greetings.recorded(folder, sets, noises, seed)
        found += bench_greetings.prompts(folder, noises, seed)
    return found


async def _through(greetings: list[Greeting], console: Console) -> list[AnsweredCall]:
    with progress_bar(console) as progress:
        task = progress.add_task("calling", total=len(greetings))

        def tell(call: AnsweredCall) -> None:
            progress.advance(task)
            if not bench_report.is_right(call, call.last) or call.first != call.last:
                wrong = (
                    f"  {call.kind}: {call.first}, {call.last}: {call.reason}: {call.name}: {call.words!r}"
                )
                progress.console.print(Text(wrong, style="dim"))

        return await bench_calls.measure(greetings, tell)
