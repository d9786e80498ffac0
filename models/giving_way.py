"""Who may wait lets the others go first: text requests beside the replies of calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager

from rejoinder.pipeline.interfaces import Llm, Message, TextLlm


def written(llm: Llm, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
    """Stream an answer that nobody waits for on a telephone: behind the replies of calls, where it can be."""
    return llm.write(messages) if isinstance(llm, TextLlm) else llm.reply(messages)


class GivingWay:
    """Whether somebody is at work who goes first."""

    def __init__(self) -> None:
        self._first = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def going_first(self) -> Iterator[None]:
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
