"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rejoinder.agent.recordings import VARIABLE

LlmOption = Annotated[
    str | None,
    typer.Option(help="ort:NAME|PATH, llama:PATH, vllm:FOLDER|NAME or openai:http://HOST/v1#MODEL"),
]
SttOption = Annotated[str | None, typer.Option(help="whisper:tiny.en, whisper:base@LANGUAGE or a folder")]
TtsOption = Annotated[str | None, typer.Option(help="piper:VOICE, hibari:VOICE")]
TurnOption = Annotated[str | None, typer.Option(help="smart-turn, or empty for words and silence alone")]
ProfileOption = Annotated[
    str | None,
    typer.Option(help="cpu-small, cpu, gpu or gpu-large: settings that fit together (docs/gpu.md)"),
]
SpeechOption = Annotated[
    Path | None, typer.Option("--speech", envvar=VARIABLE, help="folder of recordings, one folder per set")
]
JsonOption = Annotated[
    Path | None, typer.Option("--json", help="write a report to this file, - for stdout", allow_dash=True)
]
