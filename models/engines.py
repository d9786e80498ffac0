"""What is behind a model: its engines, and the caches of prompts."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from rejoinder.models.llm.failover.failover import Failover
from rejoinder.models.tts.phrases import PhraseVoice
from rejoinder.pipeline.engines.engine import Engine


@runtime_checkable
class PromptCache(Protocol):
    """A language model that counts the tokens of prompts.

    prompt_tokens: those of all prompts so far, also of those that are read ahead. cached_tokens: of these,
    those that the model had read before.
    """

    prompt_tokens: int
    cached_tokens: int


def llms_of(model: Any) -> list[Any]:
    """Return the models of a list of language models; of any other model, that one."""
    return [one.llm for one in model.candidates] if isinstance(model, Failover) else [model]


def engines_of(model: Any) -> list[Engine[Any, Any]]:
    """Return the engines of a model: its own, or those of the models of a list or behind kept phrases."""
    behind = [model.voice] if isinstance(model, PhraseVoice) else llms_of(model)
    engines = [getattr(each, "engine", None) for each in behind]
    return [engine for engine in engines if isinstance(engine, Engine)]
