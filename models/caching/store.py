"""Where entries are kept, and how many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """The limits of a cache. The oldest entries go first.

    ttl_s: how long an entry is kept, in seconds. entries: most entries. bytes: most bytes of all entries.
    """

    ttl_s: float = 86_400.0
    entries: int = 1_000
    bytes: int = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Stats:
    """What a cache holds: entries that have not expired, and their bytes."""

    entries: int
    bytes: int


class AnswerStore(Protocol):
    """Bytes by key. The methods raise the errors of the store; cancelling stops the wait only."""

    async def get(self, key: str) -> bytes | None:
        """Return an entry, None if there is none or it has expired. Cancelling stops the wait only."""
        ...

    async def put(self, key: str, body: bytes) -> None:
        """Store an entry, and delete what is over the limits. Cancelling stops the wait only."""
        ...

    async def stats(self) -> Stats:
        """Count the entries. Cancelling stops the wait only."""
        ...

    async def purge(self) -> int:
        """Delete all entries, and return how many there were. Cancelling stops the wait only."""
        ...

    async def aclose(self) -> None:
        """Close the store. Cancelling stops the wait only."""
        ...
