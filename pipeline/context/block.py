"""A block of older entries, which a summary replaces as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rejoinder.pipeline.context.condense import EARLIER
from rejoinder.pipeline.prompt import Entry

SUMMARY = "Earlier in this conversation:\n{summary}"
"""The summary in the prompt, behind the instructions.

It is part of the system message: many chat templates allow only one, at the start.
"""
SPEAKERS = {"user": "Caller", "assistant": "Agent", "tool": "Tool"}
"""The speakers in the text of a block, by role; any other role is a note."""


@dataclass(slots=True)
class Block:
    """The oldest entries of a prompt.

    summary: what stands for the entries before them. entries: these entries, at least one.
    tokens: most tokens of the summary that replaces ``summary`` and ``entries``.
    """

    summary: str
    entries: Sequence[Entry]
    tokens: int
    _texts: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self._texts = [entry.text for entry in self.entries]

    @property
    def text(self) -> str:
        """The summary before and the entries, one line each."""
        return block_text(self.summary, self.entries)

    def fits(self, summary: str, entries: Sequence[Entry]) -> bool:
        """Return whether these are the same summary and the same entries with the same words."""
        same = len(entries) == len(self.entries) and all(map(_is, entries, self.entries))
        return same and summary == self.summary and [entry.text for entry in entries] == self._texts


def block_text(summary: str, entries: Sequence[Entry]) -> str:
    """Return the text to summarise: the summary before, then one line per entry with its speaker."""
    lines = [EARLIER + line for line in summary.splitlines()]
    for entry in entries:
        if entry.role == "call":
            lines.append(f"Note: called {entry.name} {' '.join(entry.text.split())}")
        elif entry.text:
            lines.append(f"{SPEAKERS.get(entry.role, 'Note')}: {' '.join(entry.text.split())}")
    return "\n".join(lines)


def with_summary(instructions: str, summary: str) -> str:
    """Return the system prompt with the summary behind the instructions."""
    return "\n\n".join(part for part in (instructions, summary and SUMMARY.format(summary=summary)) if part)


def _is(one: Entry, other: Entry) -> bool:
    return one is other
