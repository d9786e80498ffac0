"""Settings of speculative decoding: smaller, quicker guesses that the model checks several at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rejoinder.models.weights.hub import is_repository, snapshot
from rejoinder.pipeline.errors import ModelError

SPECULATIVE = "speculative_config"
"""The name of the setting, which is also vLLM's."""
NGRAM = "ngram"
"""Guesses by looking the last tokens up in the prompt. It needs no weights."""
DRAFT_MODEL = "draft_model"
"""Guesses by a smaller model with the same vocabulary."""
LOOKUP = ("prompt_lookup_min", "prompt_lookup_max")
"""Fewest and most tokens that n-grams look up."""


def check_speculative_config(given: dict[str, Any]) -> dict[str, Any]:
    """Return a ``speculative_config``, unless vLLM would misread it, or refuse it after minutes of loading.

    Raises ValueError.
    """
    method, model = given.get("method"), given.get("model")
    if not method and not model:
        raise ValueError('write a method, such as {method = "ngram"}, or the model that drafts')
    if not _is_count(given.get("num_speculative_tokens")):
        raise ValueError("write how many tokens are guessed at once: num_speculative_tokens = 3")
    if method == DRAFT_MODEL and not model:
        raise ValueError('write which model drafts: {method = "draft_model", model = "/models/small"}')
    if method == NGRAM and model not in (None, NGRAM):
        raise ValueError(f'n-grams need no model: remove {model!r}, or write method = "draft_model"')
    least, most = (given.get(name) for name in LOOKUP)
    if any(value is not None and not _is_count(value) for value in (least, most)):
        raise ValueError(f"{' and '.join(LOOKUP)} are whole numbers of at least 1")
    if least is not None and most is not None and least > most:
        raise ValueError(
            f"prompt_lookup_min is {least} and must be at most prompt_lookup_max, which is {most}"
        )
    return given


def with_local_draft(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of vLLM's engine, with the folder of the model that drafts in place of its name.

    name: of the model, for the error. Nothing is downloaded. Raises ModelError if there is no such folder, or
    if a model of the hub is not in the cache.
    """
    config = arguments.get(SPECULATIVE, {})
    model = config.get("model")
    if not isinstance(model, str) or model == NGRAM:
        return arguments
    folder = Path(model).expanduser()
    if not folder.is_dir():
        if not is_repository(model):
            raise ModelError(name, f"{SPECULATIVE}: there is no folder {model} with a model that drafts")
        folder = snapshot(model)
    return {**arguments, SPECULATIVE: {**config, "model": str(folder)}}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
