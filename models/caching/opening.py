"""Opens the store of a cache of answers from its address."""

from __future__ import annotations

import time
from pathlib import Path

from rejoinder.models.caching.redis import RedisStore
from rejoinder.models.caching.sqlite import SqliteStore
from rejoinder.models.caching.store import AnswerStore, CacheLimits
from rejoinder.models.redis_server import REDIS_URLS
from rejoinder.pipeline.errors import ModelError

SQLITE_URL = "sqlite:"
"""Begins the address of a SQLite file: ``sqlite:answers.db``."""


def open_store(url: str, limits: CacheLimits) -> AnswerStore:
    """Return the store at an address: ``sqlite:PATH``, or the URL of a Redis server.

    Raises ModelError for another address, and if it cannot be opened. A Redis server is connected later.
    """
    if path := url.removeprefix(SQLITE_URL) if url.startswith(SQLITE_URL) else "":
        return SqliteStore(Path(path).expanduser(), limits, time.time)
    if url.startswith(REDIS_URLS):
        return RedisStore(url, limits)
    # The address may hold a password.
    raise ModelError(
        "cache", f"{url.partition(':')[0][:40]!r} is no store: write sqlite:PATH or redis://HOST"
    )
