"""Looks for cached answers while the user still speaks."""

from __future__ import annotations

from rejoinder.pipeline.caching.answers import AnswerCache, CachedAnswer, Question
from rejoinder.pipeline.early_task import EarlyTask
from rejoinder.pipeline.replying.cancelled_tasks import CancelledTasks
from rejoinder.pipeline.words import normalise

CACHE_WAIT_S = 0.05
"""Longest time that a reply waits for the cache, in seconds. Then it asks the language model."""


class Search:
    """One search for the answer to a question.

    found: the answer, None until it is there and for a miss. work: the search itself.
    """

    def __init__(self, cache: AnswerCache, question: Question) -> None:
        self.question = question
        self.found: CachedAnswer | None = None
        self.cache = cache
        self.work = EarlyTask(self._find(), "the cache", "cache")

    async def _find(self) -> None:
        self.found = await self.cache.find(self.question)

    async def wait(self) -> CachedAnswer | None:
        """Return the answer; None for a miss, and after ``CACHE_WAIT_S``.

        Cancelling the last wait cancels a search that was replaced.
        """
        await self.work.wait(CACHE_WAIT_S)
        return self.found


class Searches:
    """The searches of one session. At most one runs, and one more that a reply waits for.

    cancelled: takes the task of a cancelled search.
    """

    def __init__(self, cancelled: CancelledTasks) -> None:
        self._cancelled = cancelled
        self._last: Search | None = None

    def look_up(self, question: Question | None, cache: AnswerCache | None) -> Search | None:
        """Return the search for a question, which starts unless it runs already; None without a question.

        A search for other words is cancelled, unless a reply waits for it.
        """
        if question is None or cache is None or not normalise(question.words):
            return None
        if self._last is None or self._last.question != question:
            self.close()
            self._last = Search(cache, question)
        return self._last

    def close(self) -> None:
        """Cancel the search; ``cancelled`` holds its task until it has ended."""
        if self._last is not None:
            self._last.work.replace(self._cancelled)
            self._last = None
