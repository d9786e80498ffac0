"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from rejoinder.agent.bench.cases.recordings import VARIABLE

LlmOption = Annotated[
    str | None,
    typer.Option(help="ort:NAME|PATH, llama:PATH, vllm:FOLDER|NAME or openai:http://HOST/v1#MODEL"),
]
SttOption = Annotated[str | None, typer.Option(help="whisper:tiny.en, whisper:base@LANGUAGE or a folder")]
TtsOption = Annotated[
    str | None,
    typer.Option("--tts", "--voice", help="a voice by its name, piper:VOICE|PATH or hibari:VOICE"),
]
InstructionsOption = Annotated[str | None, typer.Option(help="what the agent is told about itself")]
GreetingOption = Annotated[
    str | None, typer.Option(help="what the agent says, word for word, when a call begins")
]
TurnOption = Annotated[str | None, typer.Option(help="smart-turn, or empty for words and silence alone")]
PortOption = Annotated[
    str | None,  # judged with the other settings, so that all mistakes are told at once and alike
    typer.Option(metavar="<int>", help="TCP port; 0 takes a free one"),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(help="cpu-small, cpu, gpu or gpu-large: settings that fit together (docs/guides/gpu.md)"),
]
SpeechOption = Annotated[
    Path | None, typer.Option("--speech", envvar=VARIABLE, help="folder of recordings, one folder per set")
]
JsonOption = Annotated[
    Path | None,
    typer.Option(
        "--json", help="write a report to this file, to stdout where none is named", allow_dash=True
    ),
]


def check_url(url: str) -> None:
    """Raise BadParameter for what is no address of a WebSocket."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("ws", "wss") and parts.hostname and parts.port != 0
    except ValueError:  # an impossible port, or half an IPv6 address
        good = False
    if not good:
        raise typer.BadParameter(
            f"{url!r} is no address of a WebSocket: write ws://HOST:PORT/v1/realtime, or wss://…",
            param_hint="--url",
        )


def names_of(sets: str) -> list[str]:
    """Return names with commas between them, each once. Raises BadParameter."""
    names = [name.strip() for name in sets.split(",") if name.strip()]
    if not names:
        raise typer.BadParameter("name at least one set of recordings", param_hint="--sets")
    return list(dict.fromkeys(names))


def numbers_of(text: str, option: str) -> list[int]:
    """Return whole numbers from 1 with commas between them. Raises BadParameter."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise typer.BadParameter(
            f"{text!r}: write whole numbers with commas between, as 1,10", param_hint=option
        )
    return found
