"""Find an adapter by a short string such as ``whisper:tiny.en`` or ``openai:http://host/v1#model``.

The part before the first colon names the adapter, the rest is its own business. Other distributions add
adapters with an entry point in the group ``rejoinder.models``: a callable that takes (argument, threads) and
returns the model.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rejoinder.models.fetch import locate
from rejoinder.models.threads import Threads
from rejoinder.pipeline.errors import ModelError, PipelineError

GROUP = "rejoinder.models"
Factory = Callable[[str, int], Any]


def create(spec: str, threads: Threads) -> Any:
    """Load the model that ``spec`` names. Raises ModelError where it is unknown, missing or broken."""
    prefix, _, argument = spec.partition(":")
    if prefix in BUILT_IN:
        factory, share = BUILT_IN[prefix]
        return factory(argument, getattr(threads, share))
    for entry in entry_points(group=GROUP, name=prefix):
        try:
            return entry.load()(argument, threads.small)
        except PipelineError:
            raise
        except Exception as error:
            raise ModelError(prefix, f"its adapter {entry.value} failed: {error!r}") from error
    known = ", ".join(sorted({*BUILT_IN, *entry_points(group=GROUP).names}))
    raise ModelError(prefix, f"there is no adapter of this name for {spec!r}; there are: {known}")


def weights(spec: str) -> str | None:
    """Return the catalog's name of the weights that ``spec`` needs, None where it needs none of ours."""
    prefix, _, argument = spec.partition(":")
    pattern = CATALOGUED.get(prefix)
    return None if pattern is None or _is_path(argument) else pattern.format(argument or DEFAULTS[prefix])


DEFAULTS = {
    "silero": "",
    "smart-turn": "",
    "whisper": "tiny.en",
    "llama": "smollm2-135m-instruct",
    "piper": "en_US-joe-medium",
    "hibari": "heart",
}
CATALOGUED = {
    "silero": "silero-vad",
    "smart-turn": "smart-turn-v3.2",
    "whisper": "whisper-{}",
    "llama": "{}",
    "piper": "piper-{}",
}


def _is_path(argument: str) -> bool:
    return "/" in argument or argument.startswith((".", "~"))


def _files(prefix: str, argument: str, suffix: str = "") -> Path:
    """Return the folder of a model, or the one file in it that ends in ``suffix``."""
    if _is_path(argument):
        path = Path(argument).expanduser()
        if not path.exists():
            raise ModelError(prefix, f"there is no file or folder {path}")
    elif argument and "{}" not in CATALOGUED[prefix]:
        raise ModelError(prefix, f"there is one model only: leave {argument!r} out, or write a path with a /")
    else:
        path = locate(weights(f"{prefix}:{argument}") or argument)
    if not suffix or path.is_file():
        return path
    for file in sorted(path.iterdir()):
        if file.name.endswith(suffix):
            return file
    raise ModelError(prefix, f"there is no *{suffix} in {path}")


def _silero(argument: str, threads: int) -> Any:
    from rejoinder.models.silero import Silero

    return Silero(_files("silero", argument, ".onnx"), threads)


def _smart_turn(argument: str, threads: int) -> Any:
    from rejoinder.models.smart_turn import SmartTurn

    return SmartTurn(_files("smart-turn", argument, ".onnx"), threads)


def _whisper(argument: str, threads: int) -> Any:
    from rejoinder.models.whisper import Whisper

    return Whisper(_files("whisper", argument), threads)


def _llama(argument: str, threads: int) -> Any:
    from rejoinder.models.llama_cpp import LlamaCpp

    return LlamaCpp(_files("llama", argument, ".gguf"), threads)


def _openai(argument: str, threads: int) -> Any:
    from rejoinder.models.openai import OpenAiChat, key_from_environment

    url, _, model = argument.partition("#")
    if not url.startswith(("http://", "https://")) or not model:
        raise ModelError("openai", f"write openai:http://HOST/v1#MODEL, not {argument!r}")
    return OpenAiChat(url, model, key_from_environment())


def _piper(argument: str, threads: int) -> Any:
    from rejoinder.models.piper import open_voice

    return open_voice(_files("piper", argument, ".onnx"), threads)


def _hibari(argument: str, threads: int) -> Any:
    from rejoinder.models.hibari import open_voice

    return open_voice(argument or DEFAULTS["hibari"], threads)


def _scripted(argument: str, threads: int) -> Any:
    from rejoinder.models.scripted import create

    return create(argument)


BUILT_IN: dict[str, tuple[Factory, str]] = {
    "silero": (_silero, "small"),
    "smart-turn": (_smart_turn, "small"),
    "whisper": (_whisper, "stt"),
    "llama": (_llama, "llm"),
    "openai": (_openai, "small"),
    "piper": (_piper, "tts"),
    "hibari": (_hibari, "small"),
    "scripted": (_scripted, "small"),
}
"""Adapter by prefix, with the share of the thread plan that it gets. Hibari is slower on two threads."""
