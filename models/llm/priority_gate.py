"""Run text requests only while no call needs a reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager

from rejoinder.pipeline.interfaces import Llm, Message, TextLlm
from rejoinder.pipeline.replying.text.answer_filter import AnswerFilter, filtered


def text_answer(llm: Llm, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
    """Stream the answer to a text request, at lower priority than replies if the model supports that.

    As in a reply, the answer has a limited length and no reasoning text. Closing the generator cancels the
    request. Raises ModelError.
    """
    return filtered(llm.write(messages) if isinstance(llm, TextLlm) else llm.reply(messages), AnswerFilter())


class PriorityGate:
    """Holds back low-priority work while high-priority work runs."""

    def __init__(self) -> None:
        self._first = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def priority(self) -> Iterator[None]:
        """Mark high-priority work: callers of ``wait`` wait until the block ends."""
        self._first += 1
        self._none.clear()
        try:
            yield
        finally:
            self._first -= 1
            if not self._first:
                self._none.set()

    async def wait(self) -> None:
        """Wait until no high-priority work runs. Cancelling ends the wait and changes nothing."""
        await self._none.wait()
