"""``rejoinder bench``: one command per benchmark; without a command, it measures latency."""

from __future__ import annotations

from typing import Annotated

import typer

from rejoinder.agent.bench.cases.recordings import DEFAULT_SETS
from rejoinder.agent.cli.bench.group import BENCHES, Benches
from rejoinder.agent.cli.options import (
    JsonOption,
    KeyOption,
    LlmOption,
    ProfileOption,
    SeedOption,
    SetsOption,
    SpeechOption,
    SttOption,
    TtsOption,
    TurnOption,
    UrlOption,
)

SETS = ",".join(DEFAULT_SETS)
"""The default of ``--sets``, with commas."""

app = typer.Typer(cls=Benches, invoke_without_command=True)
for name, sentence in BENCHES.items():
    app.add_typer(typer.Typer(), name=name, help=sentence)


@app.callback()
def latency(
    context: typer.Context,
    url: UrlOption = None,
    key: KeyOption = None,
    clips: Annotated[int, typer.Option(min=1, help="recordings to play")] = 44,
    sets: SetsOption = SETS,
    seed: SeedOption = 0,
    llm: LlmOption = None,
    stt: SttOption = None,
    tts: TtsOption = None,
    turn: TurnOption = None,
    profile: ProfileOption = None,
    speech: SpeechOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure the time from the last sample of speech to the first audible sample of the answer.

    Each recording of a person plays in real time, in its own call. The first audible sample is the first
    above -50 dBFS, at the moment when a client without a buffer plays it.
    """
    if context.invoked_subcommand is not None:
        return
    from rejoinder.agent.cli.bench.latency import run

    flags = {"llm": llm, "stt": stt, "tts": tts, "turn": turn, "profile": profile}
    run(url, key, clips, sets, seed, flags, speech, json_file)
