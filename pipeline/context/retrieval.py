"""Retrieves knowledge for the user's words while they still speak."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rejoinder.pipeline.early_task import EarlyTask
from rejoinder.pipeline.replying.cancelled_tasks import CancelledTasks
from rejoinder.pipeline.words import normalise, same_words

ContextFunction = Callable[[str], Awaitable[str]]
"""Takes the user's words, and returns what the language model should know to answer them, "" for nothing.

It runs on partial transcripts, before the user's turn is over, so it may read and must not change anything.
"""


class Lookup:
    """One run of a context function.

    words: what was looked up. text: the result, "" until it is there, and after an error.
    work: the run itself.
    """

    def __init__(
        self, words: str, function: ContextFunction, fit: Callable[[str], str], found: Callable[[], None]
    ) -> None:
        self.words = words
        self.text = ""
        self._found = found
        self.work = EarlyTask(self._look_up(function, fit), "the context function", "context", self._report)

    async def _look_up(self, function: ContextFunction, fit: Callable[[str], str]) -> None:
        self.text = fit((await function(self.words)).strip())

    def _report(self) -> None:
        if self.text and self.work.unused:
            self._found()

    async def wait(self, seconds: float) -> str:
        """Return the result; "" if it takes longer than this.

        Cancelling the last wait cancels a lookup that was replaced.
        """
        await self.work.wait(seconds)
        return self.text


class Retrieval:
    """The lookups of one session. At most one runs, and one more that a reply waits for.

    cancelled: takes the task of a cancelled lookup. fit: shortens a result that is too long.
    found: called with the words when there is a result that no reply waits for.
    """

    def __init__(
        self, cancelled: CancelledTasks, fit: Callable[[str], str], found: Callable[[str], None]
    ) -> None:
        self._cancelled = cancelled
        self._fit = fit
        self._found = found
        self._last: Lookup | None = None

    @property
    def text(self) -> str:
        """The result for the words that were looked up last; "" while there is none."""
        return self._last.text if self._last else ""

    def look_up(self, words: str, function: ContextFunction | None) -> Lookup | None:
        """Return the lookup of these words, which starts unless it runs already; None without a function.

        A lookup of other words is cancelled, unless a reply waits for it.
        """
        if function is None or not normalise(words):
            return None
        if self._last is None or not same_words(self._last.words, words):
            self.close()
            self._last = Lookup(words, function, self._fit, lambda: self._found(words))
        return self._last

    def close(self) -> None:
        """Cancel the lookup; ``cancelled`` holds its task until it has ended."""
        if self._last is not None:
            self._last.work.replace(self._cancelled)
            self._last = None
