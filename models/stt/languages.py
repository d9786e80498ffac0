"""The languages of a Whisper model, read from its files: ``whisper:base@de``."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rejoinder.models.specs import is_path
from rejoinder.pipeline.errors import ModelError

ENGLISH = "en"
"""The default language, which all Whisper models know."""
MULTILINGUAL_TOKENS = 51_865
"""Size of the smallest multilingual vocabulary. The English one has one token fewer (openai/whisper)."""
LANGUAGE_TOKEN = re.compile(r"<\|([a-z]{2,3})\|>")
"""The token of a language in Whisper's tokenizer."""


def with_language(argument: str) -> tuple[str, str]:
    """Split ``NAME@LANGUAGE`` into name and language. An existing path may itself contain an @."""
    name, at, language = argument.rpartition("@")
    if not at or "/" in language or (is_path(argument) and Path(argument).expanduser().exists()):
        return argument, ENGLISH
    return name, language


def check_language(path: Path, language: str) -> None:
    """Raise ModelError if the model in a folder does not support a language, such as ``de``."""
    known = languages(path)
    if language in known:
        return
    if known == [ENGLISH]:
        what = (
            f"{path.name} knows English only, not {language!r}; take a model whose name does not end in .en"
        )
        raise ModelError("whisper", what)
    raise ModelError(
        "whisper", f"there is no language {language!r} in {path.name}; there are: {', '.join(known)}"
    )


def languages(path: Path) -> list[str]:
    """Return the language codes of the model in a folder. Raises ModelError if its files cannot be read."""
    try:
        if _vocabulary(path) < MULTILINGUAL_TOKENS:
            return [ENGLISH]  # its tokenizer has other languages too, but the model does not know them
        tokens = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
        found = [LANGUAGE_TOKEN.fullmatch(token["content"]) for token in tokens]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError("whisper", f"cannot read which languages {path} knows: {error}") from error
    return sorted(match[1] for match in found if match)


def _vocabulary(path: Path) -> int:
    """Return the number of tokens in the vocabulary, a JSON file for newer models."""
    file = path / "vocabulary.json"
    if file.is_file():
        return len(json.loads(file.read_text(encoding="utf-8")))
    return len((path / "vocabulary.txt").read_bytes().splitlines())
