"""Opens the store of a cache of answers from its address."""

from __future__ import annotations

import time

from rejoinder.models.caching.redis import RedisStore
from rejoinder.models.caching.sqlite import SqliteStore
from rejoinder.models.caching.store import AnswerStore, CacheLimits
from rejoinder.models.stores import sqlite_path


def open_store(url: str, limits: CacheLimits) -> AnswerStore:
    """Return the store at an address: ``sqlite:PATH``, or the URL of a Redis server.

    Raises ModelError for another address, and if it cannot be opened. A Redis server is connected later.
    """
    path = sqlite_path(url, "cache")
    return SqliteStore(path, limits, time.time) if path else RedisStore(url, limits)
