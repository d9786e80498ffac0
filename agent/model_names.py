"""Public names of models: no URL, no path and no secret."""

from __future__ import annotations

from rejoinder.models.loading import Specs
from rejoinder.models.registry import adapter, own_path, weights
from rejoinder.models.weights.catalog import catalog


def catalogued(spec: str) -> str:
    """Return the catalog's name of a model, "" for a model that is not in the catalog."""
    found = weights(spec) or ""
    return found if found in catalog() else ""


def known_as(spec: str) -> str:
    """Return the public name of the model that ``spec`` names: no URL, folder, script or secret."""
    prefix, _, argument = spec.partition(":")
    if name := catalogued(spec):
        return name
    ours = adapter(prefix)
    if ours and ours.packaged:
        return f"{prefix} {argument}".strip()
    if prefix == "openai":
        return argument.partition("#")[2] or prefix
    # The argument of a third-party adapter may be an address with a key, so it is not shown.
    if ours and prefix != "scripted" and "/" in argument:
        return own_path(spec).name or prefix
    return prefix


def names(specs: Specs) -> dict[str, str]:
    """Return the public names of the language model (llm), the recogniser (stt) and the voice (tts)."""
    return {"llm": known_as(specs.llm), "stt": known_as(specs.stt), "tts": known_as(specs.tts)}
