"""What models are called before strangers: by name, without the place where a server or a file is."""

from __future__ import annotations

from rejoinder.models.loading import Specs
from rejoinder.models.registry import BUILT_IN, own_path, weights
from rejoinder.models.weights.catalog import PACKAGED, catalog


def catalogued(spec: str) -> str:
    """Return the catalog's name of a model, "" for one that is not in it."""
    found = weights(spec) or ""
    return found if found in catalog() else ""


def known_as(spec: str) -> str:
    """Return the name of the model that ``spec`` names: no URL, no folder, no script and no secret."""
    prefix, _, argument = spec.partition(":")
    if name := catalogued(spec):
        return name
    if prefix in PACKAGED:
        return f"{prefix} {argument}".strip()
    if prefix == "openai":
        return argument.partition("#")[2] or prefix
    # What an adapter of others makes of its argument is not known here: it may be an address with a key.
    if prefix in BUILT_IN and prefix != "scripted" and "/" in argument:
        return own_path(spec).name or prefix
    return prefix


def names(specs: Specs) -> dict[str, str]:
    """Return the names of the language model, the recogniser and the voice."""
    return {"llm": known_as(specs.llm), "stt": known_as(specs.stt), "tts": known_as(specs.tts)}
