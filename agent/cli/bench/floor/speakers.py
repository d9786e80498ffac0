"""``rejoinder bench speakers``: which voices take the floor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from rejoinder.agent.bench.cases.recordings import speech_folder
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.bench.speakers import listening as speakers_listening
from rejoinder.agent.bench.speakers import report as speakers_report
from rejoinder.agent.bench.speakers import scenes as speakers_scenes
from rejoinder.agent.bench.speakers import voices as speakers_voices
from rejoinder.agent.bench.speakers.listening import VoiceOutcome
from rejoinder.agent.bench.speakers.scenes import Scene
from rejoinder.agent.cli.options import JsonOption, SeedOption, SpeechOption
from rejoinder.agent.machine import occasion
from rejoinder.models.loading import Specs, open_models
from rejoinder.pipeline.errors import PipelineError

SPECS = Specs(vad="silero", turn="", stt="scripted:stt", llm="scripted:llm", tts="scripted:tts")
"""The models: only voice activity detection has work to do."""


def speakers(
    count: Annotated[int, typer.Option(min=1, help="scenes of each kind and place")] = 20,
    half: Annotated[
        speakers_voices.Half, typer.Option(help="judge, or fit: the speakers that chose the constants")
    ] = "judge",
    seed: SeedOption = 0,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure which voices take the floor: the caller's, or others.

    In each scene the caller says a turn, and then a voice is heard: the caller's own, louder or quieter, or
    one in the background. Real voice activity detection hears it, with speakers = "many" and "one". With
    --json, the last line on stdout holds the key figures.
    """
    report: dict[str, Any] = {**occasion(), "half": half, "count": count, "seed": seed}
    console = console_beside(json_file)
    try:
        folder = speech_folder(speech)
        voices = speakers_voices.voices(folder, half, seed)
        made = list(speakers_scenes.scenes(voices, folder, count))
        found = speakers_report.rows(asyncio.run(_listen(made, console)))
    except PipelineError as error:
        leave(error)
    console.print(speakers_report.table(found))
    write(json_file, {**report, **speakers_report.report(found)})
    if json_file:
        typer.echo(json.dumps(speakers_report.summary(found)))


async def _listen(made: Sequence[Scene], console: Console) -> list[tuple[VoiceOutcome, VoiceOutcome]]:
    """Run each scene with both settings."""
    outcomes = []
    async with open_models(SPECS) as models:
        with progress_bar(console) as progress:
            task = progress.add_task("listening", total=len(made))
            for scene in made:
                windows = speakers_listening.windows_of(scene, models.vad)
                many = await speakers_listening.listen(scene, windows, "many")
                outcomes.append((many, await speakers_listening.listen(scene, windows, "one")))
                progress.advance(task)
    return outcomes
