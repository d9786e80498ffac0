"""Find an adapter by a short string such as ``whisper:tiny.en`` or ``openai:http://host/v1#model``.

The part before the first colon names the adapter; the adapter interprets the rest. Other distributions add
adapters with an entry point in the group ``rejoinder.models``: a callable that takes (argument, threads) and
returns the model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from rejoinder.models.hints import require
from rejoinder.models.placement import HERE, Placement
from rejoinder.models.stt.languages import ENGLISH, check_language
from rejoinder.models.threads import Threads
from rejoinder.models.weights.catalog import catalog
from rejoinder.models.weights.fetch import locate
from rejoinder.models.weights.hub import is_repository, is_whisper, snapshot, whisper_snapshot
from rejoinder.pipeline.errors import ModelError, PipelineError
from rejoinder.pipeline.fitting import PARTS

GROUP = "rejoinder.models"
"""Entry-point group in which other distributions publish adapters."""
GPU_BATCH = 8
"""Most recordings in one Whisper batch on a GPU. Unbatched, Whisper falls behind from about 8 live streams
(SYSTRAN/faster-whisper #1192)."""
ROLES = {kind: PARTS[kind].name for kind in ("vad", "turn", "stt", "llm", "tts")}
"""Name of each role for error messages, by kind, in the order in which a set of models is loaded."""


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


def create(spec: str, threads: Threads, placement: Placement = HERE) -> Any:
    """Load the model that ``spec`` names. Raises ModelError if the model is unknown, missing or broken."""
    prefix, _, argument = spec.partition(":")
    if adapter := BUILT_IN.get(prefix):
        return adapter.open(adapter.find(argument), getattr(threads, adapter.share), placement)
    for entry in entry_points(group=GROUP, name=prefix):
        try:
            return entry.load()(argument, threads.small)
        except PipelineError:
            raise
        except Exception as error:
            raise ModelError(prefix, f"its adapter {entry.value} failed: {error!r}") from error
    raise ModelError(
        prefix, f"there is no adapter of this name for {spec!r}; there are: {', '.join(adapters())}"
    )


def check(kind: str, spec: str) -> None:
    """Check that ``spec`` names an available model for the role ``kind``, without loading the model.

    For an adapter of another distribution, the role is checked only when the model is loaded. Raises
    ModelError.
    """
    prefix, _, argument = spec.partition(":")
    ours = BUILT_IN.get(prefix)
    if not spec:
        raise ModelError(kind, f"a {ROLES[kind]} is needed; {_there_are(kind)}")
    # Reading the entry points of all distributions takes milliseconds, so only unknown names look there.
    if ours is None and prefix not in adapters():
        if kind == "tts" and ":" not in spec:
            raise ModelError("tts", no_voice(spec))
        raise ModelError(prefix, f"there is no adapter of this name for {spec!r}; {_there_are(kind)}")
    scripted_as = argument.partition("|")[0] if prefix == "scripted" else kind
    if (ours is not None and kind not in ours.kinds) or scripted_as != kind:
        raise ModelError(prefix, f"{spec!r} is no {ROLES[kind]}; {_there_are(kind)}")
    if ours is not None:
        ours.find(argument)


def _there_are(kind: str) -> str:
    return f"there are: {', '.join(adapters(kind))}"


def adapters(kind: str = "") -> list[str]:
    """Return the sorted names of the adapters for the role ``kind``, or of all adapters if it is empty."""
    ours = {name for name, adapter in BUILT_IN.items() if not kind or kind in adapter.kinds}
    return sorted(ours | (set(entry_points(group=GROUP).names) - BUILT_IN.keys()))


def voices() -> list[str]:
    """Return the specs of all named voices: those in the catalog and those of the package hibari."""
    start = CATALOGUED["piper"].format("")
    names = [f"piper:{name.removeprefix(start)}" for name in catalog() if name.startswith(start)]
    return names + [f"hibari:{name}" for name in _hibari_voices()]


def voice(name: str) -> str:
    """Return the spec of a voice given by its bare name or path. Return any other spec unchanged."""
    if ":" in name or not name or name in adapters():
        return name
    if _is_path(name):
        return f"piper:{name}"
    return next((spec for spec in voices() if spec.partition(":")[2] == name), name)


def no_voice(name: str) -> str:
    """Return the error message for an unknown voice."""
    return f"there is no voice {name!r}; there are: {', '.join(voices())}, and piper:PATH for any of Piper's"


def weights(spec: str) -> str | None:
    """Return the catalog name of the weights that ``spec`` needs, or None if it needs none."""
    prefix, name = _name(spec)
    pattern = CATALOGUED.get(prefix)
    return None if pattern is None or _is_path(name) else pattern.format(name or DEFAULTS[prefix])


def of_hub(spec: str) -> str | None:
    """Return the ``rejoinder models fetch`` name of the hub weights that ``spec`` needs, or None."""
    prefix, name = _name(spec)
    if prefix == "vllm":
        return name if is_repository(name) else None
    if prefix == "whisper" and not _is_path(name) and weights(spec) not in catalog() and is_whisper(name):
        return weights(spec)
    return None


def own_path(spec: str) -> Path:
    """Return the path in a spec that names a file or folder instead of a catalog entry."""
    return Path(_name(spec)[1]).expanduser()


DEFAULTS = {
    "silero": "",
    "smart-turn": "",
    "whisper": "tiny.en",
    "llama": "smollm2-135m-instruct",
    "ort": "smollm2-135m-instruct",
    "piper": "en_US-joe-medium",
    "hibari": "heart",
}
"""The argument that a spec without one stands for, by adapter."""
CATALOGUED = {
    "silero": "silero-vad",
    "smart-turn": "smart-turn-v3.2",
    "whisper": "whisper-{}",
    "llama": "{}",
    "ort": "{}",
    "piper": "piper-{}",
}
"""The catalog name of an adapter's weights; ``{}`` stands for the argument of the spec."""


def _is_path(argument: str) -> bool:
    return "/" in argument or argument.startswith((".", "~"))


def _name(spec: str) -> tuple[str, str]:
    prefix, _, argument = spec.partition(":")
    return prefix, with_language(argument)[0] if prefix == "whisper" else argument


def with_language(argument: str) -> tuple[str, str]:
    """Split ``NAME@LANGUAGE`` into name and language. An existing path may itself contain an @."""
    name, at, language = argument.rpartition("@")
    if not at or "/" in language or (_is_path(argument) and Path(argument).expanduser().exists()):
        return argument, ENGLISH
    return name, language


def _find(prefix: str, suffix: str, argument: str) -> Path:
    """Return the folder of a model, or the one file in it that ends in ``suffix``."""
    require(prefix)
    if _is_path(argument):
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
    if argument and not _is_path(argument) and CATALOGUED["piper"].format(argument) not in catalog():
        raise ModelError("piper", no_voice(argument))
    return _find("piper", ".onnx", argument)


def _find_hibari(argument: str) -> str:
    require("hibari")
    if argument and argument not in _hibari_voices():
        raise ModelError("hibari", no_voice(argument))
    return argument or DEFAULTS["hibari"]


def _hibari_voices() -> list[str]:
    if find_spec("hibari") is None:
        return [DEFAULTS["hibari"]]
    from hibari.voices import VOICES

    return list(VOICES)


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
    from rejoinder.models.llm.ort.adapter import OrtLlm

    return OrtLlm(path, threads)


def _openai(found: tuple[str, str], threads: int, placement: Placement) -> Any:
    from rejoinder.models.llm.openai import OpenAiChat, key_from_environment

    url, model = found
    return OpenAiChat(url, model, key_from_environment())


def _vllm(path: Path, threads: int, placement: Placement) -> Any:
    from rejoinder.models.llm.vllm.tools import open_vllm

    return open_vllm(str(path), threads, placement.vllm)


def _piper(path: Path, threads: int, placement: Placement) -> Any:
    from rejoinder.models.tts.piper import open_voice

    return open_voice(path, threads, placement.cuda)


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
