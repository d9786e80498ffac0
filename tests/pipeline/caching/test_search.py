"""Which searches of a session are one."""

from __future__ import annotations

from dataclasses import replace

from rejoinder.agent.simulate import virtual_clock
from rejoinder.pipeline.caching.answers import CachedAnswer, CacheQuestion
from rejoinder.pipeline.caching.search import Search, Searches
from rejoinder.pipeline.replying.cancelled_tasks import CancelledTasks

QUESTION = CacheQuestion("What is C?", "scope")


class Echoing:
    """A cache whose answer is the question."""

    async def find(self, question: CacheQuestion) -> CachedAnswer | None:
        if question.words == "Fail.":
            raise ValueError("damaged")
        return CachedAnswer([]) if question == QUESTION else None

    def keep(self, question: CacheQuestion, answer: CachedAnswer) -> None:
        raise AssertionError


def test_a_sign_or_another_scope_is_another_search() -> None:
    async def ask() -> None:
        searches, cache = Searches(CancelledTasks()), Echoing()

        def look_up(question: CacheQuestion) -> Search:
            search = searches.look_up(question, cache)
            assert search
            return search

        first = look_up(QUESTION)
        assert look_up(QUESTION) is first
        assert await first.wait() == CachedAnswer([])
        for other in (
            replace(QUESTION, words="What is C++?"),
            replace(QUESTION, scope="another"),
            replace(QUESTION, recogniser="whisper:base@de"),
            replace(QUESTION, words="Fail."),
        ):
            search = look_up(other)
            assert search is not first
            assert await search.wait() is None
        assert searches.look_up(replace(QUESTION, words=" . "), cache) is None
        assert searches.look_up(QUESTION, None) is searches.look_up(None, cache) is None

    virtual_clock.run(ask())
