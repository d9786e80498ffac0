"""A call that is over, in the form in which it is kept and sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rejoinder.agent.server.calls.record import CallRecord


@dataclass(frozen=True, slots=True)
class KeptCall:
    """A call that is over. summary: its entry in a list. words: for a search. body: all of it as JSON."""

    summary: dict[str, Any]
    words: str
    body: str

    @classmethod
    def of(cls, record: CallRecord) -> KeptCall:
        """Return a record as it is kept. A long one takes tens of milliseconds: call it in a thread."""
        return cls(record.summary(), record.words(), record.to_json())

    @property
    def size(self) -> int:
        """The characters of its texts."""
        return len(self.words) + len(self.body)
