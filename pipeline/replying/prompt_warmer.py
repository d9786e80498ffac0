"""Sends prompts to the language model's cache while the user still speaks."""

from __future__ import annotations

import asyncio
import logging

from rejoinder.pipeline.engines.deadline import GUESS_SECONDS, PARTIAL_SECONDS, Deadline, current
from rejoinder.pipeline.history import History
from rejoinder.pipeline.interfaces import Llm
from rejoinder.pipeline.prompt import with_context
from rejoinder.pipeline.replying.cancelled_tasks import CancelledTasks

log = logging.getLogger(__name__)


class PromptWarmer:
    """Fills the language model's cache with the prompts of one session, one at a time.

    task: the task that fills the cache, None before the first one. It may have ended.
    """

    def __init__(self, llm: Llm, history: History) -> None:
        self.task: asyncio.Task[None] | None = None
        self._llm = llm
        self._history = history
        self._deadline = Deadline(PARTIAL_SECONDS)

    def use(self, llm: Llm) -> None:
        """Send the next prompts to another language model."""
        self._llm = llm

    def warm(self, text: str, context: str = "") -> None:
        """Send the prompt that ends with these words of the user, unless another one is being sent.

        context: retrieved knowledge in front of the words.
        """
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._send(text, context, self._deadline), name="warm")

    def take_deadline(self) -> Deadline:
        """Return the deadline of the prompt that is being sent, for the reply that waits for it.

        The prompt is then as urgent as a guess. Later prompts get a new deadline.
        """
        deadline, self._deadline = self._deadline, Deadline(PARTIAL_SECONDS)
        deadline.slack = GUESS_SECONDS
        return deadline

    def cancel(self, cancelled: CancelledTasks) -> None:
        """Stop sending, and pass the task on to ``cancelled``."""
        if self.task is not None and not self.task.done():
            self.task.cancel()
            cancelled.add(self.task)

    async def _send(self, text: str, context: str, deadline: Deadline) -> None:
        current.set(deadline)
        try:
            await self._llm.warm(with_context(self._history.messages(text), context))
        except Exception as error:  # only speed is lost: the reply itself reports the error
            log.debug("warming the prompt failed: %s", error)
