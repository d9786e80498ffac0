"""Reads a list of language models, such as ``big, openai:http://localhost:11434/v1#qwen3 small``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from rejoinder.models.registry import adapters, language_model
from rejoinder.models.specs import LANGUAGE_MODELS, is_path
from rejoinder.models.weights.hub import is_repository

_WORD = re.compile(r"[^\s,]+")


def listed(text: str, names: Collection[str] = ()) -> list[str]:
    """Return the specs and names in a list, separated by blanks or commas; a size becomes its spec.

    A word begins the next spec where it has an adapter's prefix, is one of ``names`` or a size. A path and a
    script may contain blanks, and sizes. Behind a name, each word is one more.
    """
    names = {*names, *LANGUAGE_MODELS}
    specs: list[str] = []
    start = 0
    for word in _WORD.finditer(text):
        begins = names - LANGUAGE_MODELS.keys() if specs and _is_long(specs[-1]) else names
        if not specs or specs[-1] in names or _begins(word[0], begins):
            start = word.start()
            specs.append("")
        specs[-1] = text[start : word.end()]
    return [one if one in names - LANGUAGE_MODELS.keys() else language_model(one) for one in specs]


def all_listed(text: str, busy_llm: str, names: Collection[str] = ()) -> list[str]:
    """Return the specs and names in a list, and the model for a busy machine last, if it is not in it."""
    return list(dict.fromkeys([*listed(text, names), *listed(busy_llm, names)]))


def _begins(word: str, names: Collection[str]) -> bool:
    prefix, colon, _ = word.partition(":")
    return word in names or (bool(colon) and prefix.islower() and prefix in adapters("llm"))


def _is_long(spec: str) -> bool:
    """Return whether a spec is a path or a script, which may contain blanks."""
    prefix, _, argument = spec.partition(":")
    if "://" in argument or (prefix == "vllm" and is_repository(argument)):
        return False
    return prefix == "scripted" or is_path(argument or prefix)


def unknown(specs: Iterable[str], names: Collection[str]) -> list[str]:
    """Return what is neither a spec nor one of ``names``."""
    there = [spec for spec in specs if ":" not in spec and spec not in names]
    return [spec for spec in there if spec not in adapters("llm") and not is_path(spec)]


def joined(given: Any) -> Any:
    """Return a list of specs and names as one text; anything else unchanged."""
    if isinstance(given, list) and given and all(isinstance(one, str) for one in given):
        return ", ".join(given)
    return given
