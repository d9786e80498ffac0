"""Opens the cache of answers that the settings name."""

from __future__ import annotations

from functools import partial

from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.faults import CACHE_FAULT, count_fault
from rejoinder.models.caching.cache import SemanticCache
from rejoinder.models.caching.opening import open_store
from rejoinder.pipeline.errors import ModelError


def open_cache(settings: Settings) -> SemanticCache | None:
    """Return the cache of answers, None if none is set. Raises ConfigError if it cannot be opened."""
    if not (url := settings.answer_cache.get_secret_value()):
        return None
    try:
        store = open_store(url, settings.cache_limits())
    except ModelError as error:
        raise ConfigError(f"answer_cache: {error}") from error
    return SemanticCache(store, settings.answer_cache_match, partial(count_fault, CACHE_FAULT))
