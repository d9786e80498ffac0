"""Decode an answer as fast as the model can, however slowly it is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

from rejoinder.pipeline.channel import Channel

Token = TypeVar("Token")


async def ahead(tokens: AsyncGenerator[Token, None], most: int) -> AsyncGenerator[Token, None]:
    """Yield what ``tokens`` yields, of which up to ``most`` may wait here; closing this closes that.

    A voice takes seconds to speak what is written in a tenth of that, and a place in the model that waited
    for it would keep other callers waiting.
    """
    written: Channel[Token] = Channel(most, "tokens")

    async def write() -> None:
        try:
            async with aclosing(tokens):
                async for token in tokens:
                    await written.send(token)
        finally:
            written.close()

    writing = asyncio.create_task(write(), name="decode")
    try:
        async for token in written:
            yield token
        await writing
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
