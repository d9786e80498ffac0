"""Finds the engines of a model, also those of the models behind it."""

from __future__ import annotations

from typing import Any

from rejoinder.models.llm.failover.failover import Failover
from rejoinder.models.llm.routing.router import Router
from rejoinder.models.tts.phrases import PhraseVoice
from rejoinder.pipeline.engines.engine import Engine


def engines_of(*models: Any) -> list[Engine[Any, Any]]:
    """Return each engine of some models once, also of those behind a list, a router or kept phrases."""
    found: dict[int, Engine[Any, Any]] = {}
    for model in models:
        for engine in _engines(model):
            found[id(engine)] = engine
    return list(found.values())


def _engines(model: Any) -> list[Engine[Any, Any]]:
    if isinstance(model, PhraseVoice):
        return engines_of(model.voice)
    if isinstance(model, Failover | Router):
        return engines_of(*(candidate.llm for candidate in model.candidates))
    engine = getattr(model, "engine", None)
    return [engine] if isinstance(engine, Engine) else []
