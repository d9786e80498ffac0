"""Retrieves what the language model should know for the user's words, while they still speak."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rejoinder.pipeline.options import ContextFunction
from rejoinder.pipeline.replying.cancelled_tasks import CancelledTasks
from rejoinder.pipeline.words import normalise

log = logging.getLogger(__name__)

MOST_CHARACTERS = 2_000
"""Most characters of a result in a prompt: about 500 tokens, a fourth of the embedded models' context."""


def cut(found: str) -> str:
    """Return a result as it stands in a prompt: at most ``MOST_CHARACTERS``, without blanks around it."""
    found = found.strip()
    return found if len(found) <= MOST_CHARACTERS else f"{found[:MOST_CHARACTERS]}…"


class Lookup:
    """One run of a context function.

    words: what is looked up. text: the result, "" until it is there and after an error.
    seconds: how long the function took, 0.0 until it has ended.
    claimed: whether a reply waits for it, or is about to. found: called with the words when there is a result
    that no reply has claimed.
    """

    def __init__(self, words: str, function: ContextFunction, found: Callable[[str], None]) -> None:
        self.words = words
        self.function = function
        self.text = ""
        self.seconds = 0.0
        self.claimed = False
        self._found: Callable[[str], None] | None = found
        self.task = asyncio.create_task(self._run(), name="context")

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            self.text = cut(await self.function(self.words))
        except Exception:
            log.exception("the context function failed; the reply does without")
        self.seconds = loop.time() - began
        if self.text and self._found:
            self._found(self.words)

    def claim(self) -> asyncio.Task[None]:
        """Return the task for a reply, which waits for it and cancels it with itself."""
        self.claimed, self._found = True, None
        return self.task

    async def wait(self, seconds: float) -> None:
        """Wait for the result; after this time it is given up. Cancelling stops the wait."""
        await asyncio.wait([self.task], timeout=seconds)
        self.claimed = False

    def answers(self, words: str, function: ContextFunction) -> bool:
        """Return whether the result is, or will be, that of this function for these words."""
        cancelled = self.task.cancelled() or self.task.cancelling()
        return not cancelled and self.function == function and normalise(self.words) == normalise(words)


class Retrieval:
    """The lookups of one session: that of the last words, and those that replies wait for.

    cancelled: takes the task of a lookup that was replaced. found: called with the words when there is a
        result and no reply waits for it.
    """

    def __init__(self, cancelled: CancelledTasks, found: Callable[[str], None]) -> None:
        self._cancelled = cancelled
        self._found = found
        self._last: Lookup | None = None

    def look_up(self, words: str, function: ContextFunction | None) -> Lookup | None:
        """Return the lookup of these words, which starts unless it has already; None without a function.

        A lookup of other words is cancelled, unless a reply waits for it.
        """
        if function is None or not normalise(words):
            return None
        if self._last is None or not self._last.answers(words, function):
            self.close()
            self._last = Lookup(words, function, self._found)
        return self._last

    def known(self, words: str) -> str:
        """Return the result for these words; "" if it is not there yet."""
        return self._last.text if self._last and self._last.words == words else ""

    def close(self) -> None:
        """Cancel the lookup unless a reply waits for it; ``cancelled`` holds its task until it has ended."""
        last, self._last = self._last, None
        if last and not last.task.done():
            self._cancelled.add(last.task)
            if not last.claimed:
                last.task.cancel()
