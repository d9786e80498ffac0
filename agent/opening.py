"""Opens what the settings name beside the models: the cache of answers, the guard, and the traces file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.trace_file import TraceFile
from rejoinder.models.caching.cache import SemanticCache
from rejoinder.models.caching.opening import open_store
from rejoinder.pipeline import Guard, PipelineError

log = logging.getLogger(__name__)


def open_cache(settings: Settings, failed: Callable[[], None] = lambda: None) -> SemanticCache | None:
    """Return the cache of answers, None if none is set. Raises ConfigError if it cannot be opened.

    failed: called for each failure of its store.
    """
    if not settings.answer_cache:
        return None
    try:
        store = open_store(settings.answer_cache, settings.cache_limits)
    except PipelineError as error:
        raise ConfigError(f"answer_cache: {error}") from error
    return SemanticCache(store, settings.answer_cache_match, failed)


def warn_of_clock(instructions: str) -> None:
    """Log that instructions with the time of day leave a cache without hits: they differ each minute."""
    if "{time}" in instructions:
        why = "the instructions have {time}, so an answer is found again within the same minute only"
        log.warning("answer_cache: %s; set instructions without {time}", why)


def open_guard(settings: Settings) -> Guard | None:
    """Return the guard of the settings, None if no rule is set. Raises ConfigError without its packages."""
    try:
        return settings.guard.guard()
    except PipelineError as error:
        raise ConfigError(f"guard: {error}") from error


def open_traces(settings: Settings) -> TraceFile | None:
    """Return the open traces file, or None if none is set. Raises ConfigError."""
    if not settings.trace_file:
        return None
    try:
        return TraceFile(os.path.expanduser(settings.trace_file))
    except OSError as error:
        reason = f"cannot open trace_file {settings.trace_file}: {error.strerror}"
        raise ConfigError(f"{reason}; name a file that can be written, or leave it out") from error
