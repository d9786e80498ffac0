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
    """Return the store at a URL.

    A Redis server need not answer yet. Raises ModelError for another URL, and for a file that cannot be
    opened; PackageMissing without redis-py.
    """
    if path := url.removeprefix(SQLITE_URL) if url.startswith(SQLITE_URL) else "":
        return SqliteConversations(Path(path).expanduser(), limits, time.time)
    if url.startswith(REDIS_URLS):
        return RedisConversations(url, limits)
    reason = f"{url.partition(':')[0]!r} is no store: give sqlite:PATH, or the URL of a Redis server"
    raise ModelError("conversations", reason)


def open_journal(settings: Settings, meters: Meters) -> Journal | None:
    """Return the journal of conversations, None if none is set. Raises ConfigError if it cannot be opened.

    meters: count its writes.
    """
    if not (url := settings.conversations.get_secret_value()):
        return None
    if not settings.resume_s:
        raise ConfigError("conversations: it needs resume_s above 0, since a client resumes what is kept")
    mb = settings.conversations_mb * 2**20
    limits = JournalLimits(settings.conversations_keep_s, settings.conversations_most, mb)
    try:
        return Journal(open_conversations(url, limits), meters)
    except ModelError as error:
        raise ConfigError(str(error)) from error
