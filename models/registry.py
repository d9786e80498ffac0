"""Find an adapter by a short string such as ``whisper:tiny.en`` or ``openai:http://host/v1#model``.

The part before the first colon names the adapter; the adapter interprets the rest. Other distributions add
adapters with an entry point in the group ``rejoinder.models``: a callable that takes (argument, threads) and
returns the model.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rejoinder.models.adapter import Adapter, Packaged
from rejoinder.models.placement import HERE, Placement
from rejoinder.models.ray.names import DEPLOYED_ROLES, kind_of
from rejoinder.models.specs import LANGUAGE_MODELS, ROLES, catalogued_llms, is_path, no_language_model
from rejoinder.models.threads import Threads
from rejoinder.pipeline.errors import ModelError, PipelineError

ENTRY_POINTS = "rejoinder.models"
"""Entry-point group in which other distributions publish adapters."""
MODULES = {
    "silero": "vad.silero",
    "smart-turn": "turn.smart_turn",
    "whisper": "stt.whisper",
    "llama": "llm.llama_cpp",
    "ort": "llm.ort.adapter",
    "openai": "llm.openai",
    "vllm": "llm.vllm.tools",
    "piper": "tts.piper",
    "hibari": "tts.hibari",
    "ray": "ray.adapter",
    "scripted": "scripted",
}
"""The modules of the built-in adapters, by name. The folder is the role, unless they have several."""
SEVERAL_ROLES = {"ray": DEPLOYED_ROLES, "scripted": tuple(ROLES)}
"""The roles of the adapters that serve in several."""


def adapter(name: str) -> Adapter | None:
    """Return the description of a built-in adapter, None if there is none of this name.

    Its module is imported, but no package that only its model needs.
    """
    if name not in MODULES:
        return None
    found: Adapter = import_module(f"rejoinder.models.{MODULES[name]}").ADAPTER
    return found


def roles(name: str) -> tuple[str, ...]:
    """Return the roles that a built-in adapter can serve in, keys of ``ROLES``."""
    return SEVERAL_ROLES.get(name) or (MODULES[name].partition(".")[0],)


def _built_in(kind: str) -> list[str]:
    return [name for name in MODULES if kind in roles(name)]


def adapters(kind: str = "") -> list[str]:
    """Return the sorted names of the adapters for the role ``kind``, or of all adapters if it is empty."""
    ours = set(_built_in(kind) if kind else MODULES)
    return sorted(ours | (set(entry_points(group=ENTRY_POINTS).names) - MODULES.keys()))


def create(spec: str, threads: Threads, placement: Placement = HERE) -> Any:
    """Load the model that ``spec`` names. Raises ModelError if the model is unknown, missing or broken."""
    prefix, _, argument = spec.partition(":")
    if ours := adapter(prefix):
        return ours.open(_found(ours, argument), getattr(threads, ours.share), placement)
    for entry in entry_points(group=ENTRY_POINTS, name=prefix):
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
    if not spec:
        raise ModelError(kind, f"a {ROLES[kind]} is needed; {_there_are(kind)}")
    # Reading the entry points of all distributions takes milliseconds, so only unknown names look there.
    if prefix not in MODULES and prefix not in adapters():
        if kind == "tts" and ":" not in spec:
            raise ModelError("tts", no_voice(spec))
        if kind == "llm" and ":" not in spec:
            raise ModelError("llm", no_language_model(spec))
        raise ModelError(prefix, f"there is no adapter of this name for {spec!r}; {_there_are(kind)}")
    named = {"scripted": argument.partition("|")[0], "ray": kind_of(argument)}.get(prefix) or kind
    if (prefix in MODULES and prefix not in _built_in(kind)) or named != kind:
        raise ModelError(prefix, f"{spec!r} is no {ROLES[kind]}; {_there_are(kind)}")
    if ours := adapter(prefix):
        _found(ours, argument)


def _found(ours: Adapter, argument: str) -> Any:
    """Return what an adapter finds. Raises ModelError, for an unknown voice with the names of all voices."""
    is_voice = MODULES[ours.name].startswith("tts.") and argument and not is_path(argument)
    if is_voice and argument not in ours.known():
        ours.require()  # a voice may be unknown only because its package is missing
        raise ModelError(ours.name, no_voice(argument))
    return ours.find(argument)


def _there_are(kind: str) -> str:
    return f"there are: {', '.join(adapters(kind))}"


def weights(spec: str) -> str | None:
    """Return the catalog name of the weights that ``spec`` needs, or None if it needs none."""
    prefix, _, argument = spec.partition(":")
    ours = adapter(prefix)
    return ours.weights_name(argument) if ours else None


def of_hub(spec: str) -> str | None:
    """Return the ``rejoinder models fetch`` name of the hub weights that ``spec`` needs, or None."""
    prefix, _, argument = spec.partition(":")
    ours = adapter(prefix)
    return ours.hub(ours.named(argument)) if ours else None


def own_path(spec: str) -> Path:
    """Return the path in a spec that names a file or folder instead of a catalog entry."""
    prefix, _, argument = spec.partition(":")
    ours = adapter(prefix)
    return Path(ours.named(argument) if ours else argument).expanduser()


def require_packages(name: str) -> None:
    """Raise PackageMissing if a package that a built-in adapter needs is not installed."""
    if ours := adapter(name):
        ours.require()


def packaged() -> dict[str, Packaged]:
    """Return the weights that are parts of packages, by the names of their adapters."""
    ours = [found for name in MODULES if (found := adapter(name))]
    return {found.name: found.packaged for found in ours if found.packaged}


def voices() -> list[str]:
    """Return the specs of all named voices: those in the catalog and those that are in packages."""
    ours = {name: found for name in _built_in("tts") if (found := adapter(name))}
    return [f"{name}:{each}" for name, found in ours.items() for each in found.known()]


def no_voice(name: str) -> str:
    """Return the error message for an unknown voice."""
    return f"there is no voice {name!r}; there are: {', '.join(voices())}, and piper:PATH for any of Piper's"


def voice(name: str) -> str:
    """Return the spec of a voice given by its bare name or path. Return any other spec unchanged."""
    if ":" in name or not name or name in adapters():
        return name
    if is_path(name):
        return f"piper:{name}"
    return next((spec for spec in voices() if spec.partition(":")[2] == name), name)


def language_model(name: str) -> str:
    """Return the spec of a language model given by its size, name or path. Return any other text unchanged.

    The sizes are those of ``LANGUAGE_MODELS``. A path is taken as a GGUF file for llama.cpp.
    """
    if ":" in name or not name or name in adapters():
        return name
    if is_path(name):
        return f"llama:{name}"
    known = dict(zip(catalogued_llms(), LANGUAGE_MODELS.values(), strict=True))
    return LANGUAGE_MODELS.get(name) or known.get(name, name)
