"""Opens the store of conversations that the settings name."""

from __future__ import annotations

import time
from pathlib import Path

from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.metrics.meters import Meters
from rejoinder.agent.server.journal.journal import Journal
from rejoinder.agent.server.journal.redis import RedisConversations
from rejoinder.agent.server.journal.sqlite import SqliteConversations
from rejoinder.agent.server.journal.store import ConversationStore, JournalLimits
from rejoinder.models.caching.opening import SQLITE_URL
from rejoinder.models.redis_server import REDIS_URLS
from rejoinder.pipeline.errors import ModelError


def open_conversations(url: str, limits: JournalLimits) -> ConversationStore:
    """Return the store at an address: ``sqlite:PATH``, or the URL of a Redis server.

    Raises ModelError for another address, and if it cannot be opened. A Redis server is connected later.
    """
    if path := url.removeprefix(SQLITE_URL) if url.startswith(SQLITE_URL) else "":
        return SqliteConversations(Path(path).expanduser(), limits, time.time)
    if url.startswith(REDIS_URLS):
        return RedisConversations(url, limits)
    # The address may hold a password.
    kind = url.partition(":")[0][:40]
    raise ModelError("conversations", f"{kind!r} is no store: write sqlite:PATH or redis://HOST")


def open_journal(settings: Settings, meters: Meters | None) -> Journal | None:
    """Return the journal of conversations, None if none is set. Raises ConfigError if it cannot be opened.

    meters: count its writes, None for no metrics.
    """
    if not (url := settings.conversations.get_secret_value()):
        return None
    if not settings.resume_s:
        raise ConfigError("conversations needs resume_s above 0: a client resumes what is kept")
    most = settings.conversations_mb * 2**20
    limits = JournalLimits(settings.conversations_keep_s, settings.conversations_most, most)
    try:
        return Journal(open_conversations(url, limits), meters or Meters())
    except ModelError as error:
        raise ConfigError(str(error)) from error
