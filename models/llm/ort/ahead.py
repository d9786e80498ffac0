"""Decode an answer at the model's speed, even if the consumer is slower."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

from rejoinder.pipeline.channel import Channel

Token = TypeVar("Token")


async def ahead(tokens: AsyncGenerator[Token, None], most: int) -> AsyncGenerator[Token, None]:
    """Yield the items of ``tokens``, with up to ``most`` of them buffered. Closing this closes ``tokens``.

    A voice takes seconds to speak text that is decoded in a tenth of that time. A KV-cache slot that waits
    for the voice would keep other callers waiting.
    """
    decoded: Channel[Token] = Channel(most, "tokens")

    async def decode() -> None:
        try:
            async with aclosing(tokens):
                async for token in tokens:
                    await decoded.send(token)
        finally:
            decoded.close()

    decoding = asyncio.create_task(decode(), name="decode")
    try:
        async for token in decoded:
            yield token
        await decoding
    finally:
        decoding.cancel()
        await asyncio.gather(decoding, return_exceptions=True)
