"""The first requests to a language model, which show that it answers."""

from __future__ import annotations

from contextlib import aclosing
from typing import Protocol, runtime_checkable

from rejoinder.pipeline.interfaces import Llm, Message


@runtime_checkable
class WarmsBatches(Protocol):
    """A language model that compiles code for batches of several answers."""

    async def warm_batches(self) -> None:
        """Answer several requests at once, in batches of each kind.

        Cancelling closes the answers. Raises ModelError.
        """


async def warm_llm(llm: Llm) -> None:
    """Generate one token, and batches if the model compiles for them.

    Cancelling closes the generation. Raises ModelError.
    """
    await probe_llm(llm)
    if isinstance(llm, WarmsBatches):
        await llm.warm_batches()


async def probe_llm(llm: Llm) -> None:
    """Generate one token. Cancelling closes the generation. Raises ModelError."""
    async with aclosing(llm.reply([Message(role="user", content="Say yes.")])) as tokens:
        async for _ in tokens:
            break
