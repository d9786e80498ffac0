"""Opens a cache of answers from its URL."""

from __future__ import annotations

from pathlib import Path

from rejoinder.models.caching.redis import RedisStore
from rejoinder.models.caching.sqlite import SqliteStore
from rejoinder.models.caching.store import AnswerStore, CacheLimits
from rejoinder.models.redis_server import REDIS_URLS
from rejoinder.models.steady_clock import steady_time
from rejoinder.pipeline.errors import ModelError

SQLITE_URL = "sqlite:"
"""Begins the URL of a SQLite file: ``sqlite:answers.db``."""


def open_store(url: str, limits: CacheLimits) -> AnswerStore:
    """Return the store at a URL.

    A Redis server need not answer yet. Raises ModelError for another URL, and for a file that cannot be
    opened; PackageMissing without redis-py.
    """
    if path := url.removeprefix(SQLITE_URL) if url.startswith(SQLITE_URL) else "":
        return SqliteStore(Path(path).expanduser(), limits, steady_time)
    if url.startswith(REDIS_URLS):
        return RedisStore(url, limits)
    raise ModelError(
        "cache",
        f"{url.partition(':')[0]!r} is no store: give sqlite:PATH, or the URL of a Redis server (redis://...)",
    )
