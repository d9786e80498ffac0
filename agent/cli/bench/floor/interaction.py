"""``rejoinder bench interaction``: calls with scripted callers, by tau-voice's definitions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from rejoinder.agent.bench.cases.recordings import speech_folder
from rejoinder.agent.bench.interaction import report as interaction_report
from rejoinder.agent.bench.interaction import sounds as interaction_sounds
from rejoinder.agent.bench.interaction.calling import (
    CALLER_WIRES,
    HOLDING,
    TELEPHONE,
    HeldCall,
    hold,
    perform,
)
from rejoinder.agent.bench.interaction.definitions import LONG_TICK_SECONDS
from rejoinder.agent.bench.interaction.script import CallScript, scripts
from rejoinder.agent.bench.interaction.virtual import open_virtual_call, virtual_models
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import (
    JsonOption,
    LlmOption,
    SeedOption,
    SpeechOption,
    SttOption,
    TtsOption,
    names_of,
)
from rejoinder.agent.machine import occasion
from rejoinder.agent.server.own_server import own_server
from rejoinder.agent.simulate import virtual_clock
from rejoinder.pipeline.errors import PipelineError

TELLER = "scripted:llm|" + " ".join(
    f"On day {number} the ship sailed to the next island, and the people there told them about the weather."
    for number in ("one", "two", "three", "four")
)
"""A scripted language model whose answer lasts for about 20 s, long enough for two sounds over it."""


def interaction(
    rounds: Annotated[int, typer.Option(min=1, help="calls on each wire")] = 10,
    wires: Annotated[str, typer.Option(help="standard, holding and telephone, comma-separated")] = ",".join(
        CALLER_WIRES
    ),
    voices: Annotated[
        str, typer.Option(help="voices for what no recording has")
    ] = "hibari:heart,piper:en_US-joe-medium",
    seed: SeedOption = 0,
    llm: LlmOption = TELLER,
    stt: SttOption = None,
    tts: TtsOption = None,
    virtual: Annotated[
        bool, typer.Option(help="in virtual time: no sockets, tones instead of a voice")
    ] = False,
    keep: Annotated[
        Path | None, typer.Option(help="write the worst ten events to this folder, as WAV and JSON")
    ] = None,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure how the agent takes turns in whole calls.

    The figures are those of tau-voice. Scripted callers speak to the agent and interrupt it. They also say
    mm-hm, cough, laugh and talk to others, and a meeting or a television is in their room.
    """
    flags = {"llm": llm, "stt": stt, "tts": tts}
    named = names_of(wires, "wire", "--wires")
    chosen = [name for name in named if not (virtual and name == TELEPHONE)]
    if not chosen:
        raise typer.BadParameter("there is no telephone in virtual time", param_hint="--wires")
    if unknown := [name for name in chosen if name not in CALLER_WIRES]:
        known = ", ".join(CALLER_WIRES)
        raise typer.BadParameter(f"{unknown[0]!r}: choose from {known}", param_hint="--wires")
    report: dict[str, Any] = {
        **occasion(),
        "models": flags,
        "seed": seed,
        "voices": voices,
        "virtual": virtual,
    }
    console = console_beside(json_file)
    try:
        folder = speech_folder(speech)
        plan = asyncio.run(_plan(folder, names_of(voices), rounds, seed))
        if virtual:
            calls = virtual_clock.run(_virtual_calls(llm or TELLER, stt, chosen, plan, console))
        else:
            calls = asyncio.run(_calls(flags, chosen, plan, console))
    except PipelineError as error:
        leave(error)
    console.print(interaction_report.figures_table(calls))
    console.print(interaction_report.kinds_table(calls))
    if keep:
        for worst in interaction_report.keep_worst(calls, keep):
            console.print(Text(f"  {worst.call.wire} {worst.call.number}: {worst.what}", style="dim"))
    write(json_file, {**report, **interaction_report.interaction_report(calls)})


async def _plan(folder: Path, voices: Sequence[str], rounds: int, seed: int) -> list[CallScript]:
    sounds = interaction_sounds.recorded(folder) + interaction_sounds.rooms(folder)
    sounds += await interaction_sounds.voiced(voices, seed)
    return scripts(folder, sounds, rounds, seed)


async def _calls(
    flags: dict[str, str | None], wires: Sequence[str], plan: Sequence[CallScript], console: Console
) -> list[HeldCall]:
    calls = []
    async with own_server(flags, console) as url:
        with progress_bar(console) as progress:
            task = progress.add_task("holding calls", total=len(plan) * len(wires))
            for number, script in enumerate(plan):
                for wire in wires:
                    calls.append(await hold(wire, url, script, number))
                    _tell(calls[-1], progress.console)
                    progress.advance(task)
    return calls


async def _virtual_calls(
    llm: str, stt: str | None, wires: Sequence[str], plan: Sequence[CallScript], console: Console
) -> list[HeldCall]:
    calls = []
    async with virtual_models(llm, stt) as models:
        for number, script in enumerate(plan):
            for wire in wires:
                async with open_virtual_call(models, script.background, wire == HOLDING) as caller:
                    calls.append(await perform(caller, wire, script, number))
                _tell(calls[-1], console)
    return calls


def _tell(call: HeldCall, console: Console) -> None:
    """Print the errors of a call."""
    for each in interaction_report.events_of([call], LONG_TICK_SECONDS):
        if not each.event.correct:
            name = call.sounds[each.event.said].name
            line = f"  {call.wire} {call.number} {each.event.at:.1f} s: {each.what}  {name}"
            console.print(Text(line, style="dim"))
