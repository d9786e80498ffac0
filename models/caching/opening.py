"""Opens the store of a cache of answers from its address."""

from __future__ import annotations

import time
from pathlib import Path

from rejoinder.models.caching.sqlite import SqliteStore
from rejoinder.models.caching.store import AnswerStore, CacheLimits
from rejoinder.pipeline.errors import ModelError

SQLITE_URL = "sqlite:"
"""Begins the address of a SQLite file: ``sqlite:answers.db``."""


def open_store(url: str, limits: CacheLimits) -> AnswerStore:
    """Return the store at an address. Raises ModelError for another one, and if it cannot be opened."""
    if path := url.removeprefix(SQLITE_URL) if url.startswith(SQLITE_URL) else "":
        return SqliteStore(Path(path).expanduser(), limits, time.time)
    raise ModelError("cache", f"{url[:40]!r} is no store: write sqlite:PATH")
