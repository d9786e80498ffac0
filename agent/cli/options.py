"""Options that several commands take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

AgentArgument = Annotated[
    str | None,
    typer.Argument(metavar="[AGENT]", help="your agent: FILE.py or MODULE, with :NAME if it has several"),
]
LlmOption = Annotated[
    str | None,
    typer.Option(help="tiny, small, medium, a GGUF file, vllm:FOLDER|NAME or openai:http://HOST/v1#MODEL"),
]
SttOption = Annotated[str | None, typer.Option(help="whisper:tiny.en, whisper:base@LANGUAGE or a folder")]
TtsOption = Annotated[
    str | None,
    typer.Option("--tts", "--voice", help="a voice by its name, piper:VOICE|PATH or hibari:VOICE"),
]
InstructionsOption = Annotated[str | None, typer.Option(help="system prompt of the agent")]
GreetingOption = Annotated[
    str | None, typer.Option(help="exact words that the agent says when a call begins")
]
TurnOption = Annotated[str | None, typer.Option(help="smart-turn, or empty to use words and silence only")]
TurnTakingOption = Annotated[
    str | None, typer.Option(help="when the agent answers: eager, balanced or patient")
]
PortOption = Annotated[
    str | None,  # validated with the other settings, so that one report lists all mistakes
    typer.Option(metavar="<int>", help="TCP port; 0: any free port"),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(help="preset of settings: cpu-tiny, cpu-small, cpu, gpu or gpu-large (docs/guides/gpu.md)"),
]
HostOption = Annotated[str | None, typer.Option(help="address to listen on")]
TlsCertOption = Annotated[
    str | None, typer.Option(help="PEM file of the certificate and its chain: serve https and wss")
]
TlsKeyOption = Annotated[str | None, typer.Option(help="PEM file of its private key")]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="TOML file; default ./rejoinder.toml")]
UrlOption = Annotated[str | None, typer.Option(help="ws://… of a running server; default: start one")]
KeyOption = Annotated[str | None, typer.Option(help="API key for --url", envvar="REJOINDER_KEY")]
WhisperOption = Annotated[str, typer.Option(help="whisper:tiny.en, whisper:base or a folder")]
SetsOption = Annotated[str, typer.Option(help="sets of recordings, comma-separated")]
TextSetsOption = Annotated[str, typer.Option(help="sets with transcripts, comma-separated")]
SeedOption = Annotated[int, typer.Option(help="seed of the random choices")]
PlotOption = Annotated[Path | None, typer.Option(help="write the figures as a PNG to this file")]
SpeechOption = Annotated[
    Path | None,
    typer.Option("--speech", envvar="REJOINDER_SPEECH", help="folder of recordings, one folder per set"),
]
JsonOption = Annotated[
    Path | None,
    typer.Option("--json", help="write a report to this file; without a file, to stdout", allow_dash=True),
]


def check_server(url: str | None, flags: Mapping[str, str | None]) -> None:
    """Raise BadParameter if ``url`` is wrong, or if the flags choose models for a running server."""
    if url is None:
        return
    check_url(url)
    if any(value is not None for value in flags.values()):
        raise typer.BadParameter("models cannot be chosen for a running server: omit them, or omit --url")


def check_url(url: str) -> None:
    """Raise BadParameter if ``url`` is not the address of a WebSocket."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("ws", "wss") and parts.hostname and parts.port != 0
    except ValueError:  # an impossible port, or half an IPv6 address
        good = False
    if not good:
        raise typer.BadParameter(
            f"{url!r} is not the address of a WebSocket: write ws://HOST:PORT/v1/realtime, or wss://…",
            param_hint="--url",
        )


def names_of(text: str, what: str = "set of recordings", option: str = "--sets") -> list[str]:
    """Return the names in a comma-separated list, without duplicates. Raises BadParameter."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise typer.BadParameter(f"name at least one {what}", param_hint=option)
    return list(dict.fromkeys(names))


def numbers_of(text: str, option: str) -> list[int]:
    """Return the whole numbers in a comma-separated list, each at least 1. Raises BadParameter."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise typer.BadParameter(
            f"{text!r}: write whole numbers from 1, separated by commas, such as 1,10", param_hint=option
        )
    return found
