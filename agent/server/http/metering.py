"""Counts the tokens of a text request whose key has a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from rejoinder.pipeline import Llm, Message, TokenLlm, ToolCall
from rejoinder.pipeline.replying.upstream import Upstream, upstream
from rejoinder.pipeline.trace import Trace


async def metered(
    pieces: AsyncGenerator[str | ToolCall, None],
    llm: Llm,
    prompt: list[Message],
    spend: Callable[[int], None],
    context: str,
) -> AsyncGenerator[str | ToolCall, None]:
    """Yield the pieces of an answer, then pass its tokens to ``spend``, also those of a broken-off answer.

    The model's server counts them, or else the model itself. Where neither does, the pieces count. context:
    the request's trace context, which is passed on unchanged. Closing or cancelling stops the model.
    """
    written = 0
    reported = Upstream(Trace(0, request=context.split("-")[2] if context else ""))
    upstream.set(reported)
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                written += 1
                yield piece
    finally:
        used = reported.usage
        if used is not None:
            spend(used.read + used.written)
        else:
            spend(written)
            if isinstance(llm, TokenLlm):
                spend(await asyncio.to_thread(llm.count, prompt))  # slow for long prompts
