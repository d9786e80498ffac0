"""Who may wait lets the others go first: text requests beside the replies of calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager

from rejoinder.pipeline.interfaces import Llm, Message, TextLlm
from rejoinder.pipeline.replying.utterance import Utterance, uttered


def written(llm: Llm, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
    """Stream the answer to a text request, behind the replies of calls where the model can do that.

    It ends where a reply would, and has no thoughts either. Closing the generator cancels the request. Raises
    ModelError.
    """
    return uttered(llm.write(messages) if isinstance(llm, TextLlm) else llm.reply(messages), Utterance())


class PriorityGate:
    """Whether somebody is at work who goes first."""

    def __init__(self) -> None:
        self._first = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def priority(self) -> Iterator[None]:
        """Let those who give way wait for the length of the block."""
        self._first += 1
        self._none.clear()
        try:
            yield
        finally:
            self._first -= 1
            if not self._first:
                self._none.set()

    async def wait(self) -> None:
        """Wait until nobody is at work who goes first."""
        await self._none.wait()
