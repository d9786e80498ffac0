"""Sends prompts to the language model's cache while the user still speaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from rejoinder.pipeline.engines.deadline import GUESS_SECONDS, PARTIAL_SECONDS, Deadline, current
from rejoinder.pipeline.engines.load_shedding import LoadLevel, LoadShedder
from rejoinder.pipeline.history import History
from rejoinder.pipeline.interfaces import NO_TOOLS, Llm, Message, Tools, ToolWarmLlm
from rejoinder.pipeline.prompt import informed
from rejoinder.pipeline.replying.cancelled_tasks import CancelledTasks

log = logging.getLogger(__name__)


class PromptWarmer:
    """Fills the language model's cache with the prompts of one session, one at a time.

    task: the task that fills the cache, None before the first one. It may have ended.
    """

    def __init__(self, llm: Llm, history: History, load_shedder: LoadShedder) -> None:
        self.task: asyncio.Task[None] | None = None
        self._llm = llm
        self._history = history
        self._load_shedder = load_shedder
        self._deadline = Deadline(PARTIAL_SECONDS)

    def use(self, llm: Llm) -> None:
        """Send the next prompts to another language model."""
        self._llm = llm

    def warm(self, text: str, tools: Tools = NO_TOOLS, found: str = "") -> None:
        """Send the prompt that ends with these words of the user, unless another one is being sent.

        tools: the tools of the reply. found: what was retrieved for the words.
        """
        if self.task is None or self.task.done():
            self._deadline.frugal = self._load_shedder.level >= LoadLevel.WINDOW
            self.task = asyncio.create_task(self._send(text, tools, found, self._deadline), name="warm")

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
            self.task = None

    async def _send(self, text: str, tools: Tools, found: str, deadline: Deadline) -> None:
        current.set(deadline)
        try:
            await read_prompt(self._llm, informed(self._history.messages(text), found), tools)
        except Exception as error:  # only speed is lost: the reply itself reports the error
            log.debug("warming the prompt failed: %s", error)


async def read_prompt(llm: Llm, messages: Sequence[Message], tools: Tools = NO_TOOLS) -> None:
    """Let a language model read a prompt into its cache. Raises ModelError.

    tools: of the reply that follows. Cancelling keeps what was read.
    """
    if tools.functions and isinstance(llm, ToolWarmLlm):
        await llm.warm_answer(messages, tools)
    else:
        await llm.warm(messages)
