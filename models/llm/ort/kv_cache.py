"""Who reads where: a few places to keep a prompt in, and the one that serves the next prompt best."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rejoinder.pipeline.interfaces import Message


class Slots:
    """Which cached prompt each slot holds, and which slots are free, the longest unused one first."""

    def __init__(self, count: int) -> None:
        self._prompts = [""] * count
        self._free = list(range(count))
        self._some = asyncio.Semaphore(count)

    @asynccontextmanager
    async def take(self, messages: Sequence[Message]) -> AsyncIterator[int]:
        """Hold the free slot whose cache serves this prompt best; waits while none is free.

        A slot that would lose more than half of its prompt is somebody else's conversation: rather than that
        one, the longest unused slot is taken.
        """
        prompt = "".join(f"{message['role']}: {message['content']}\n" for message in messages)

        def served(slot: int) -> int:
            same = shared(self._prompts[slot], prompt)
            return same if 2 * same >= len(self._prompts[slot]) else 0

        async with self._some:
            slot = max(self._free, key=served)
            self._free.remove(slot)
            self._prompts[slot] = prompt
            try:
                yield slot
            finally:
                self._free.append(slot)


def shared(first: Sequence[object], second: Sequence[object]) -> int:
    """Return how many elements two sequences begin with together."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))
