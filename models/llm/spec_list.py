"""Reads a list of language models, such as ``big, openai:http://localhost:11434/v1#qwen3 ort:``."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import Any

from rejoinder.models.registry import adapters

_WORD = re.compile(r"[^\s,]+")


def listed(text: str, names: Container[str] = ()) -> list[str]:
    """Return the specs and names in a list, separated by blanks or commas.

    A word begins the next spec where it has an adapter's prefix or is one of ``names``. So a path and a
    script may contain blanks. Behind a name, each word is one more.
    """
    specs: list[str] = []
    start = 0
    for word in _WORD.finditer(text):
        if not specs or specs[-1] in names or _begins(word[0], names):
            start = word.start()
            specs.append("")
        specs[-1] = text[start : word.end()]
    return specs


def _begins(word: str, names: Container[str]) -> bool:
    prefix, colon, _ = word.partition(":")
    return word in names or (bool(colon) and prefix.islower() and prefix in adapters("llm"))


def unknown(specs: Iterable[str], names: Container[str]) -> list[str]:
    """Return what is neither a spec nor one of ``names``."""
    there = [spec for spec in specs if ":" not in spec and spec not in names]
    return [spec for spec in there if spec not in adapters("llm")]


def joined(given: Any) -> Any:
    """Return a list of specs and names as one text; anything else unchanged."""
    if isinstance(given, list) and given and all(isinstance(one, str) for one in given):
        return ", ".join(given)
    return given
