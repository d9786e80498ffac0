"""The built-in adapters: how each finds its weights, and how it is opened.

To add an adapter, write a finder and an opener like those below, and a line in ``BUILT_IN``. The opener
imports the adapter's module, so that a library is loaded only with its model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rejoinder.models.hints import require
from rejoinder.models.placement import Placement
from rejoinder.models.specs import (
    CATALOGUED,
    DEFAULTS,
    ROLES,
    hibari_voices,
    is_path,
    no_voice,
    of_hub,
    weights,
    with_language,
)
from rejoinder.models.stt.languages import ENGLISH, check_language
from rejoinder.models.weights.catalog import catalog
from rejoinder.models.weights.fetch import locate
from rejoinder.models.weights.hub import is_repository, snapshot, whisper_snapshot
from rejoinder.pipeline.errors import ModelError

GPU_BATCH = 8
"""Most recordings in one Whisper batch on a GPU. Unbatched, Whisper falls behind from about 8 live streams
(SYSTRAN/faster-whisper #1192)."""


class Adapter(NamedTuple):
    """A built-in adapter.

    find: takes the argument of a spec and returns what ``open`` needs, without loading the model. Raises
        ModelError.
    open: takes the result of ``find``, the number of threads and the placement, and returns the model.
    share: field of ``Threads`` that holds this adapter's number of threads.
    kinds: roles that the model can serve in, keys of ``ROLES``.
    """

    find: Callable[[str], Any]
    open: Callable[[Any, int, Placement], Any]
    share: str
    kinds: tuple[str, ...]


def _find(prefix: str, suffix: str, argument: str) -> Path:
    """Return the folder of a model, or the one file in it that ends in ``suffix``."""
    require(prefix)
    if is_path(argument):
        path = Path(argument).expanduser()
        if not path.exists():
            raise ModelError(prefix, f"there is no file or folder {path}")
    elif argument and "{}" not in CATALOGUED[prefix]:
        raise ModelError(prefix, f"there is one model only: leave {argument!r} out, or write a path with a /")
    else:
        argument = weights(f"{prefix}:{argument}") or argument
        path = locate(argument)
    if not suffix or path.is_file():
        return path
    listed = catalog().get(argument)  # the folder may also hold files that an older version fetched
    for file in [path / one.name for one in listed.files] if listed else sorted(path.iterdir()):
        if file.name.endswith(suffix):
            return file
    raise ModelError(prefix, f"there is no *{suffix} in {path}")


def _find_whisper(argument: str) -> tuple[Path, str]:
    require("whisper")
    name, language = with_language(argument)
    path = whisper_snapshot(name) if of_hub(f"whisper:{name}") else _find("whisper", "", name)
    if language != ENGLISH:  # every Whisper model knows English
        check_language(path, language)
    return path, language


def _find_server(argument: str) -> tuple[str, str]:
    require("openai")
    url, _, model = argument.partition("#")
    if not url.startswith(("http://", "https://")) or not model:
        raise ModelError("openai", f"write openai:http://HOST/v1#MODEL, not {argument!r}")
    return url, model


def _find_vllm(argument: str) -> Path:
    require("vllm")
    path = Path(argument).expanduser()
    if path.is_dir() and argument:
        return path
    if is_repository(argument):
        return snapshot(argument)
    raise ModelError("vllm", f"write vllm:FOLDER or vllm:ORGANISATION/NAME of the hub, not {argument!r}")


def _find_piper(argument: str) -> Path:
    require("piper")
    if argument and not is_path(argument) and CATALOGUED["piper"].format(argument) not in catalog():
        raise ModelError("piper", no_voice(argument))
    return _find("piper", ".onnx", argument)


def _find_hibari(argument: str) -> str:
    require("hibari")
    if argument and argument not in hibari_voices():
        raise ModelError("hibari", no_voice(argument))
    return argument or DEFAULTS["hibari"]


def _silero(path: Path, threads: int, placement: Placement) -> Any:
    from rejoinder.models.vad.silero import Silero

    return Silero(path, threads)


def _smart_turn(path: Path, threads: int, placement: Placement) -> Any:
    from rejoinder.models.turn.smart_turn import SmartTurn

    return SmartTurn(path, threads)


def _whisper(found: tuple[Path, str], threads: int, placement: Placement) -> Any:
    from rejoinder.models.stt.whisper import Whisper

    path, language = found
    return Whisper(path, threads, language, batch=GPU_BATCH if placement.cuda else 1, cuda=placement.cuda)


def _llama(path: Path, threads: int, placement: Placement) -> Any:
    from rejoinder.models.llm.llama_cpp import LlamaCpp

    return LlamaCpp(path, threads)


def _ort(path: Path, threads: int, placement: Placement) -> Any:
    from rejoinder.models.llm.ort.tools import open_ort

    return open_ort(path, threads)


def _openai(found: tuple[str, str], threads: int, placement: Placement) -> Any:
    from rejoinder.models.llm.openai import OpenAiChat, key_from_environment

    url, model = found
    return OpenAiChat(url, model, key_from_environment())


def _vllm(path: Path, threads: int, placement: Placement) -> Any:
    from rejoinder.models.llm.vllm.tools import open_vllm

    return open_vllm(str(path), threads, placement.vllm)


def _piper(path: Path, threads: int, placement: Placement) -> Any:
    from rejoinder.models.tts.piper import open_voice

    return open_voice(path, threads)


def _hibari(voice: str, threads: int, placement: Placement) -> Any:
    from rejoinder.models.tts.hibari import open_voice

    return open_voice(voice, threads)


def _scripted(argument: str, threads: int, placement: Placement) -> Any:
    from rejoinder.models.scripted import create

    return create(argument)


BUILT_IN: dict[str, Adapter] = {
    "silero": Adapter(partial(_find, "silero", ".onnx"), _silero, "small", ("vad",)),
    "smart-turn": Adapter(partial(_find, "smart-turn", ".onnx"), _smart_turn, "small", ("turn",)),
    "whisper": Adapter(_find_whisper, _whisper, "stt", ("stt",)),
    "llama": Adapter(partial(_find, "llama", ".gguf"), _llama, "llm", ("llm",)),
    "ort": Adapter(partial(_find, "ort", ".gguf"), _ort, "llm", ("llm",)),
    "openai": Adapter(_find_server, _openai, "small", ("llm",)),
    "vllm": Adapter(_find_vllm, _vllm, "llm", ("llm",)),
    "piper": Adapter(_find_piper, _piper, "tts", ("tts",)),
    "hibari": Adapter(_find_hibari, _hibari, "small", ("tts",)),
    "scripted": Adapter(str, _scripted, "small", tuple(ROLES)),
}
"""Adapters by prefix. Hibari gets the ``small`` share because it is slower on two threads than on one."""
