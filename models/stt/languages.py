"""Which languages a Whisper model knows, from its files alone: ``whisper:base@de``."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rejoinder.pipeline.errors import ModelError

ENGLISH = "en"
MULTILINGUAL_TOKENS = 51_865
"""Size of the smallest multilingual vocabulary; the English one has one token less (openai/whisper)."""
LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")


def check_language(path: Path, language: str) -> None:
    """Raise ModelError where the model in a folder does not know a language, such as ``de``."""
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
    """Return the languages of the model in a folder. Raises ModelError where it has no files that say."""
    try:
        if _vocabulary(path) < MULTILINGUAL_TOKENS:
            return [ENGLISH]  # its tokenizer has the others too, and they mean nothing to it
        tokens = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
        found = [LANGUAGE.fullmatch(token["content"]) for token in tokens]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError("whisper", f"cannot read which languages {path} knows: {error}") from error
    return sorted(match[1] for match in found if match)


def _vocabulary(path: Path) -> int:
    """Return the number of tokens; newer models have them in JSON."""
    file = path / "vocabulary.json"
    if file.is_file():
        return len(json.loads(file.read_text(encoding="utf-8")))
    return len((path / "vocabulary.txt").read_bytes().splitlines())
