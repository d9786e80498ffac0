"""The first request to a language model, which shows that it answers."""

from __future__ import annotations

from contextlib import aclosing

from rejoinder.pipeline.interfaces import Llm, Message


async def warm_llm(llm: Llm) -> None:
    """Generate one token with a language model. Cancelling closes the generation. Raises ModelError."""
    async with aclosing(llm.reply([Message(role="user", content="Say yes.")])) as tokens:
        async for _ in tokens:
            break
