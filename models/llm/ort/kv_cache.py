"""Assigns prompts to KV-cache slots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rejoinder.pipeline.interfaces import NO_TOOLS, Message, Tools


class Slots:
    """The prompt that each slot holds, and the free slots, least recently used first."""

    def __init__(self, count: int) -> None:
        self._prompts = [""] * count
        self._free = list(range(count))
        self._some = asyncio.Semaphore(count)

    @asynccontextmanager
    async def take(self, messages: Sequence[Message], tools: Tools = NO_TOOLS) -> AsyncIterator[int]:
        """Hold the free slot that shares the longest prefix with this prompt; wait while no slot is free.

        A slot that would lose more than half of its prompt belongs to another conversation. In that case, the
        least recently used slot is taken. Cancelling frees the slot, or ends the wait.
        """
        said = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
        # A template may put the tools before the first message, so other tools make another prompt.
        prompt = f"{list(tools.functions)}\n{said}" if tools.functions else said

        def served(slot: int) -> int:
            length = common_prefix(self._prompts[slot], prompt)
            return length if 2 * length >= len(self._prompts[slot]) else 0

        async with self._some:
            slot = max(self._free, key=served)
            self._free.remove(slot)
            self._prompts[slot] = prompt
            try:
                yield slot
            finally:
                self._free.append(slot)


def common_prefix(first: Sequence[object], second: Sequence[object]) -> int:
    """Return the length of the longest common prefix of two sequences."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))
