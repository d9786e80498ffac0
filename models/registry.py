"""Find an adapter by a short string such as ``whisper:tiny.en`` or ``openai:http://host/v1#model``.

The part before the first colon names the adapter; the adapter interprets the rest. Other distributions add
adapters with an entry point in the group ``rejoinder.models``: a callable that takes (argument, threads) and
returns the model.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from rejoinder.models.built_in import BUILT_IN
from rejoinder.models.placement import HERE, Placement
from rejoinder.models.specs import LANGUAGE_MODELS, ROLES, is_path, no_language_model, no_voice, voices
from rejoinder.models.threads import Threads
from rejoinder.pipeline.errors import ModelError, PipelineError

GROUP = "rejoinder.models"
"""Entry-point group in which other distributions publish adapters."""


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
        if kind == "llm" and ":" not in spec:
            raise ModelError("llm", no_language_model(spec))
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
    known = {spec.partition(":")[2]: spec for spec in LANGUAGE_MODELS.values()}
    return LANGUAGE_MODELS.get(name) or known.get(name, name)
