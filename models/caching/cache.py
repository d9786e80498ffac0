"""A cache of spoken answers: which questions it takes, its keys, and its deadlines."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Literal

from rejoinder.models.caching.entries import ENTRY_FORMAT, form, packed, unpacked
from rejoinder.models.caching.meaning import meaning
from rejoinder.models.caching.passing import depends_on_time
from rejoinder.models.caching.store import AnswerStore
from rejoinder.models.stt.languages import ENGLISH
from rejoinder.pipeline.caching.answers import CachedAnswer, CacheQuestion
from rejoinder.pipeline.channel import Channel

log = logging.getLogger(__name__)

PROGRAM_VERSION = version("rejoinder")
"""Part of every key: another version may speak the same words in another way."""
Match = Literal["meaning", "exact"]
"""What a question has to share with a cached one: its meaning, or its words."""
LOOKUP_S = 0.02
"""Longest lookup, in seconds. A later answer is a miss."""
CACHE_RETRY_S = 5.0
"""After a lookup that failed, the store is not asked for this long, in seconds."""
CACHE_WRITE_S = 2.0
"""Longest time to store an answer, and to store those that wait when the cache closes, in seconds."""
CACHE_WRITES = 16
"""Most answers that wait to be stored: more are dropped."""


class SemanticCache:
    """The cache of one process. ``of`` returns the part of one tenant; ``running`` stores what is kept.

    match: "exact" finds the same words only; "meaning" finds other words of the same meaning, too, where the
    recogniser's language is English. failed: called for each failure of the store.
    """

    def __init__(
        self, store: AnswerStore, match: Match = "exact", failed: Callable[[], None] = lambda: None
    ) -> None:
        self.store = store
        self._failed = failed
        self._match = match
        self._writes: Channel[tuple[str, bytes]] = Channel(CACHE_WRITES, "cache")
        self._retry = 0.0
        self._late: set[asyncio.Task[bytes | None]] = set()

    def of(self, tenant: str) -> TenantCache:
        """Return the answers of one tenant, such as the owner of an API key."""
        return TenantCache(self, tenant)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[SemanticCache]:
        """Store answers for the length of the block; at its end those that wait, and close the store.

        Cancelling does the same.
        """
        writing = asyncio.create_task(self._write(), name="cache-writes")
        try:
            yield self
        finally:
            self._writes.close()
            await asyncio.wait([writing], timeout=CACHE_WRITE_S)
            writing.cancel()
            for lookup in self._late:
                lookup.cancel()
            await asyncio.wait([writing, *self._late])
            await self.store.aclose()

    async def find(self, tenant: str, question: CacheQuestion) -> CachedAnswer | None:
        """Return the answer to a tenant's question, None for a miss.

        A store that is away or slow costs at most ``LOOKUP_S``. While a late lookup still runs, for it may
        have to connect first, all others are misses; after a failure they are for ``CACHE_RETRY_S``.
        Cancelling stops the wait only.
        """
        loop = asyncio.get_running_loop()
        key = self.key(tenant, question)
        if key is None or self._late or loop.time() < self._retry:
            return None
        lookup = asyncio.create_task(self.store.get(key), name="cache-lookup")
        try:
            await asyncio.wait([lookup], timeout=LOOKUP_S)
        finally:
            if not lookup.done():  # cancelling would break its connection off
                self._late.add(lookup)
                lookup.add_done_callback(self._end_late)
        if not lookup.done():
            return None
        try:
            body = lookup.result()
            return None if body is None else unpacked(question, body)
        except Exception as error:
            self._fail(error)
            return None

    def _end_late(self, lookup: asyncio.Task[bytes | None]) -> None:
        self._late.discard(lookup)
        if not lookup.cancelled() and isinstance(error := lookup.exception(), Exception):
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failed()
        log.warning("the cache failed: %s", error)
        self._retry = asyncio.get_running_loop().time() + CACHE_RETRY_S

    def keep(self, tenant: str, question: CacheQuestion, answer: CachedAnswer) -> None:
        """Take an answer to store; drop it where ``CACHE_WRITES`` wait."""
        if (key := self.key(tenant, question)) is not None and not self._writes.closed:
            if not self._writes.send_nowait((key, packed(question, answer))):
                self._failed()
                log.warning("the cache is busy: an answer was not stored")

    async def put(self, tenant: str, question: CacheQuestion, answer: CachedAnswer) -> None:
        """Store an answer now. Raises the errors of the store, and ValueError for a question without a key.

        Cancelling stops the wait only.
        """
        if (key := self.key(tenant, question)) is None:
            raise ValueError("the answer to this question may change with time")
        await self.store.put(key, packed(question, answer))

    async def holds(self, tenant: str, question: CacheQuestion) -> bool:
        """Return whether there is an answer to a question, however long the store takes.

        Raises its errors. Cancelling stops the wait only.
        """
        key = self.key(tenant, question)
        return key is not None and await self.store.get(key) is not None

    def key(self, tenant: str, question: CacheQuestion) -> str | None:
        """Return the key of a question; None where its answer may not be used again.

        Another tenant, scope, recogniser or meaning is another key.
        """
        english = is_english(question.recogniser)
        if english and depends_on_time(question.words):
            return None
        means = meaning(question.words) if english and self._match == "meaning" else None
        asked = [
            ENTRY_FORMAT,
            PROGRAM_VERSION,
            tenant,
            question.scope,
            question.recogniser,
            form(question.words, means),
        ]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()

    async def _write(self) -> None:
        async for key, body in self._writes:
            try:
                async with asyncio.timeout(CACHE_WRITE_S):
                    await self.store.put(key, body)
            except TimeoutError:
                self._failed()
                log.warning("an answer was not stored: the cache did not take it within %g s", CACHE_WRITE_S)
            except Exception as error:
                self._failed()
                log.warning("an answer was not stored: %s", error)


class TenantCache:
    """The cached answers of one tenant (``AnswerCache``): those of others are out of its reach."""

    def __init__(self, cache: SemanticCache, tenant: str) -> None:
        self._cache = cache
        self._tenant = tenant

    async def find(self, question: CacheQuestion) -> CachedAnswer | None:
        """Return the answer to a question, None for a miss. Cancelling changes nothing."""
        return await self._cache.find(self._tenant, question)

    def keep(self, question: CacheQuestion, answer: CachedAnswer) -> None:
        """Take an answer to store."""
        self._cache.keep(self._tenant, question, answer)


def is_english(recogniser: str) -> bool:
    """Return whether a recogniser writes English: ``whisper:base`` does, ``whisper:base@de`` does not."""
    name, _, language = recogniser.partition("@")
    return name.partition(":")[0] == "whisper" and language in ("", ENGLISH)
