"""Looks for cached answers while the user still speaks."""

from __future__ import annotations

import asyncio
import logging

from rejoinder.pipeline.caching.answers import AnswerCache, CachedAnswer, CacheQuestion
from rejoinder.pipeline.replying.cancelled_tasks import CancelledTasks
from rejoinder.pipeline.words import normalise

log = logging.getLogger(__name__)

CACHE_WAIT_S = 0.05
"""Longest time that a reply waits for the cache, in seconds. Then it asks the language model."""


class Search:
    """One search for the answer to a question.

    cache: that is asked. found: the answer, None until it is there and for a miss. seconds: how long the
    search took, 0.0 until it has ended. task: the search itself.
    """

    def __init__(self, cache: AnswerCache, question: CacheQuestion) -> None:
        self.cache = cache
        self.question = question
        self.found: CachedAnswer | None = None
        self.seconds = 0.0
        self.task = asyncio.create_task(self._find(), name="cache")

    async def _find(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            self.found = await self.cache.find(self.question)
        except Exception:
            log.exception("the answer cache failed; the reply does without")
        self.seconds = loop.time() - began

    async def wait(self) -> CachedAnswer | None:
        """Return the answer; None for a miss, and after ``CACHE_WAIT_S``. Cancelling stops the wait."""
        await asyncio.wait([self.task], timeout=CACHE_WAIT_S)
        return self.found


class Searches:
    """The searches of one session: that for the last words, and earlier ones, which end within moments.

    cancelled: holds the task of a search until it has ended.
    """

    def __init__(self, cancelled: CancelledTasks) -> None:
        self._cancelled = cancelled
        self._last: Search | None = None

    def look_up(self, question: CacheQuestion | None, cache: AnswerCache | None) -> Search | None:
        """Return the search for a question, which starts unless it runs already; None without a question."""
        if question is None or cache is None or not normalise(question.words):
            self._let_go()
            return None
        if self._last is None or self._last.question != question:
            self._let_go()
            self._last = Search(cache, question)
        return self._last

    def close(self) -> None:
        """Cancel the search."""
        if self._last is not None:
            self._last.task.cancel()
            self._let_go()

    def _let_go(self) -> None:
        if self._last is not None and not self._last.task.done():
            self._cancelled.add(self._last.task)
        self._last = None
