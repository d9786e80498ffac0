"""The interface of a store of conversations: parts of each by name, and who owns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """The limits of a store. Those that were seen least recently go first.

    keep_s: how long a conversation is kept after its server was last seen, in seconds. conversations: most
    conversations. bytes: most bytes of all of them.
    """

    keep_s: float = 300.0
    conversations: int = 1_000
    bytes: int = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Save:
    """One write: parts of a conversation to replace. Without parts, it says that the owner is alive.

    key: the hash of the conversation's id. generation: of its owner. new: whether the conversation may be
    missing in the store; any other one that is missing was dropped, and stays so.
    """

    key: str
    generation: int
    new: bool = False
    parts: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Saved:
    """A conversation in the store: the generation of its owner, and its parts."""

    generation: int
    parts: Mapping[str, bytes]


class WriteRefusal(Enum):
    """Why a write was refused."""

    TAKEN = "the conversation goes on at another server"
    DROPPED = "the store has dropped the conversation, because it is full"


class ConversationStore(Protocol):
    """Conversations that several processes share. One process owns a conversation at a time.

    The owner's generation rises with each owner. A write of an earlier one is refused, so a process that was
    cut off cannot overwrite what its successor has written. All methods raise OSError or the errors of the
    store; cancelling stops the wait only.
    """

    async def save(self, saves: Sequence[Save]) -> dict[str, WriteRefusal]:
        """Write all of these; return which were refused, by key. Delete what is over the limits.

        Cancelling ends the wait only.
        """
        ...

    async def find(self, key: str) -> Saved | None:
        """Return a conversation, None if there is none or it is too old. Cancelling ends the wait only."""
        ...

    async def claim(self, key: str, generation: int) -> int | None:
        """Become the owner of a conversation; return the new generation.

        generation: of the owner before. None where another process was faster.
        Cancelling ends the wait only.
        """
        ...

    async def drop(self, key: str, generation: int) -> None:
        """Delete a conversation that has ended, if it is still of this generation.

        Cancelling ends the wait only.
        """
        ...

    async def aclose(self) -> None:
        """Close the store. Cancelling ends the wait only."""
        ...
