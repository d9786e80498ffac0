"""``rejoinder bench stt``: accuracy and speed of the streaming recogniser, compared with faster-whisper."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from rejoinder.agent.bench import stt as bench_stt
from rejoinder.agent.bench.cases.recordings import (
    MAX_RECORDING_SECONDS,
    Recording,
    read_set,
    sample,
    speech_folder,
)
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import JsonOption, SpeechOption, TextSetsOption, WhisperOption, names_of
from rejoinder.agent.machine import occasion
from rejoinder.pipeline.errors import PipelineError

SETS = ",".join(bench_stt.STT_SETS)
"""The default of ``--sets``, with commas."""


def stt(
    limit: Annotated[int | None, typer.Option(min=1, help="recordings per set; default: all")] = None,
    sets: TextSetsOption = SETS,
    stt: WhisperOption = "whisper:tiny.en",
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Compare the streaming recogniser with faster-whisper."""
    report: dict[str, Any] = {**occasion(), "model": stt}
    console = console_beside(json_file)
    try:
        rate = bench_stt.error_rate()
        folder = speech_folder(speech)
        names = names_of(sets)
        recordings = [recording for name in names for recording in _with_text(folder, name, limit)]
        utterances = asyncio.run(_recognise(stt, recordings, console))
    except PipelineError as error:
        leave(error)
    compared = {
        name: bench_stt.compare(chosen, rate)
        for name in names
        if (chosen := [utterance for utterance in utterances if utterance.set == name])
    }
    console.print(bench_stt.table(stt, compared))
    report["sets"] = {name: {**asdict(row), "relative": row.relative} for name, row in compared.items()}
    write(json_file, {**report, "utterances": [asdict(utterance) for utterance in utterances]})


async def _recognise(
    spec: str, recordings: Sequence[Recording], console: Console
) -> list[bench_stt.RecognisedUtterance]:
    recognisers = bench_stt.Recognisers(spec)
    try:
        await recognisers.recognise(recordings[0])  # the first run of each recogniser is slower
        with progress_bar(console) as progress:
            task = progress.add_task("recognising", total=len(recordings))
            utterances = []
            for recording in recordings:
                utterances.append(await recognisers.recognise(recording))
                progress.advance(task)
            return utterances
    finally:
        recognisers.close()


def _with_text(folder: Path, name: str, limit: int | None) -> list[Recording]:
    known = [recording for recording in read_set(folder, name) if recording.text]
    if not known:
        raise PipelineError(f"the set {name} has no transcripts; choose other --sets")
    chosen = known if limit is None else sample([known], limit)
    if not chosen:
        raise PipelineError(
            f"the set {name} has no transcribed recording of up to {MAX_RECORDING_SECONDS:.0f} s"
        )
    return chosen
