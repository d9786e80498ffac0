"""Summarises the older part of a long conversation in the background, while neither side has the floor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from rejoinder.pipeline.context.block import Block
from rejoinder.pipeline.context.condense import condense, decided, facts
from rejoinder.pipeline.context.tokens import estimated
from rejoinder.pipeline.engines.deadline import SPARE_SECONDS, Deadline, current
from rejoinder.pipeline.history import History
from rejoinder.pipeline.interfaces import Llm, Message, TextLlm
from rejoinder.pipeline.replying.cancelled_tasks import CancelledTasks
from rejoinder.pipeline.replying.text.answer_filter import AnswerFilter, filtered
from rejoinder.pipeline.upstream import upstream

log = logging.getLogger(__name__)

Compress = Callable[[str, int, Llm], Awaitable[str]]
"""Takes the older part of a conversation, one line per turn, the most tokens of the result, and the session's
language model; returns a shorter text. It is cancelled when anybody speaks."""

TASK = (
    "Summarise the telephone conversation between a caller and an agent in at most {words} words, for the "
    "agent who goes on with it. Lines that begin with Earlier are your last summary. Keep every name, "
    "number, date, promise and decision exactly. Write plain sentences. Write nothing else."
)
"""Asks a language model for a summary."""
WORDS_PER_TOKEN = 0.7
"""Words per token that a summary is asked to have."""


async def condensed(text: str, tokens: int, llm: Llm) -> str:
    """Return the lines with names, numbers and decisions. It asks no model. Cancelling changes nothing."""
    return condense(text, tokens)


async def summarise(text: str, tokens: int, llm: Llm) -> str:
    """Return a summary by the language model. A ``Compress`` function.

    The summary has at most half of ``tokens``. The other half is for lines with numbers, names and decisions
    that the model left out: small models leave out much. Raises ModelError. Cancelling cancels the request.
    """
    task = TASK.format(words=int(tokens // 2 * WORDS_PER_TOKEN))
    messages = [Message(role="system", content=task), Message(role="user", content=text)]
    pieces: AsyncGenerator[str, None] = (
        llm.write(messages) if isinstance(llm, TextLlm) else llm.reply(messages)
    )
    summary = ""
    async with aclosing(filtered(pieces, AnswerFilter(tokens // 2))) as words:
        async for word in words:
            summary += word
    return with_facts(" ".join(summary.split()), text, tokens)


def summarise_with(model: Llm) -> Compress:
    """Return a ``Compress`` function that uses another language model than the session's."""

    async def compress(text: str, tokens: int, llm: Llm) -> str:
        """Return a summary by the other model. Cancelling cancels the request."""
        return await summarise(text, tokens, model)

    return compress


def with_facts(summary: str, text: str, tokens: int) -> str:
    """Return the summary and the lines with facts that it lacks, as far as ``tokens`` allow."""
    lines = [summary] if summary else []
    left = tokens - estimated(summary)
    for line in condense(text, tokens).splitlines():
        known = "\n".join(lines).lower()
        if any(word not in known for word in facts(line) | decided(line)) and estimated(line) < left:
            lines.append(line)
            left -= estimated(line) + 1
    return "\n".join(lines)


class Summaries:
    """The summaries of one session, one at a time.

    cancelled: takes the task of a cancelled summary. replaced: called once a summary is in the prompt.
    running: whether one is being made.
    """

    def __init__(
        self,
        llm: Llm,
        history: History,
        cancelled: CancelledTasks,
        replaced: Callable[[], None] = lambda: None,
    ) -> None:
        self._llm = llm
        self._history = history
        self._cancelled = cancelled
        self._replaced = replaced
        self._task: asyncio.Task[None] | None = None

    def use(self, llm: Llm) -> None:
        """Ask another model for the summaries that begin from now on."""
        self._llm = llm

    @property
    def running(self) -> bool:
        """Whether a summary is being made."""
        return self._task is not None

    def begin(self, compress: Compress | None) -> None:
        """Summarise the older part of the conversation if it is long and no summary is being made.

        Call it while neither side has the floor, and ``cancel`` as soon as one side takes it.
        """
        if compress is not None and self._task is None and (block := self._history.block()):
            self._task = asyncio.create_task(self._run(compress, block), name="summary")

    def cancel(self) -> None:
        """Stop; the conversation stays as it is, and ``begin`` starts again."""
        if self._task is not None:
            self._task.cancel()
            self._cancelled.add(self._task)
            self._task = None

    async def _run(self, compress: Compress, block: Block) -> None:
        current.set(Deadline(SPARE_SECONDS))
        upstream.set(None)  # of the reply that ended last: its trace is reported
        try:
            summary = (await compress(block.text, block.tokens, self._llm)).strip()
        except Exception as error:
            log.warning("the summary of a long conversation failed, its facts are kept: %s", error)
            summary = ""
        self._task = None
        if self._history.replace(block, summary or condense(block.text, block.tokens)):
            self._replaced()
