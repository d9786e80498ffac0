"""Opens the store of conversations that the settings name."""

from __future__ import annotations

import time

from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.metrics.meters import Meters
from rejoinder.agent.server.journal.journal import Journal
from rejoinder.agent.server.journal.redis import RedisConversations
from rejoinder.agent.server.journal.sqlite import SqliteConversations
from rejoinder.agent.server.journal.store import ConversationStore, JournalLimits
from rejoinder.models.stores import sqlite_path
from rejoinder.pipeline.errors import ModelError


def open_conversations(url: str, limits: JournalLimits) -> ConversationStore:
    """Return the store at an address: ``sqlite:PATH``, or the URL of a Redis server.

    Raises ModelError for another address, and if it cannot be opened. A Redis server is connected later.
    """
    path = sqlite_path(url, "conversations")
    return SqliteConversations(path, limits, time.time) if path else RedisConversations(url, limits)


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
