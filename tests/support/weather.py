"""A language model that looks up the weather, for conversations in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from rejoinder.agent.app.runs import CANCELLED
from rejoinder.pipeline import Message, ToolCall, Tools
from rejoinder.pipeline.prompt import PENDING


class Clerk:
    """A language model that looks up the weather once, and again if the caller cancelled it.

    It answers what the prompt shows last: a result, a call without result, or words of the caller. thinks:
    seconds before each answer.
    """

    def __init__(self, thinks: float = 0.0) -> None:
        self.open = 0
        self.asked = 0
        self.thinks = thinks

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Answer without tools; the agent always has some."""
        yield "No tools."

    async def warm(self, messages: Sequence[Message]) -> None:
        """Do nothing."""

    async def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        """Answer the prompt, after 80 ms and ``thinks``."""
        self.open += 1
        try:
            await asyncio.sleep(0.08 + self.thinks)
            results = [one["content"] for one in messages if one["role"] == "tool"]
            if not results or results[-1] == CANCELLED:
                self.asked += 1
                yield ToolCall(f"c{self.asked}", "weather", '{"city": "Rome"}')
            elif results[-1] == PENDING:
                yield "I am still looking."
            else:
                yield f"It is {results[-1]}."
        finally:
            self.open -= 1
