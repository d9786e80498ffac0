"""Reads the address of a store: a SQLite file, or a Redis server."""

from __future__ import annotations

from pathlib import Path

from rejoinder.models.redis_server import REDIS_URLS
from rejoinder.pipeline.errors import ModelError

SQLITE_URL = "sqlite:"
"""Begins the address of a SQLite file: ``sqlite:answers.db``."""


def sqlite_path(url: str, what: str) -> Path | None:
    """Return the path in ``sqlite:PATH``, None for the URL of a Redis server.

    what: what is kept there, for messages. Raises ModelError for another address.
    """
    if path := url.removeprefix(SQLITE_URL) if url.startswith(SQLITE_URL) else "":
        return Path(path).expanduser()
    if url.startswith(REDIS_URLS):
        return None
    # The address may hold a password.
    raise ModelError(what, f"{url.partition(':')[0][:40]!r} is no store: write sqlite:PATH or redis://HOST")
