"""What is known of the caller of one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from rejoinder.agent.app.memory.memory import Memory

FACT_NAME_CHARACTERS = 64
"""Most characters of a fact's name."""
FACT_CHARACTERS = 400
"""Most characters of a fact."""
KNOWN = "{instructions}\n\nYou know this from earlier calls of this caller:\n{facts}"
"""The system prompt with the facts. They stay the same for the whole call, so that a prefix cache holds."""

Write = Callable[[str, Callable[[], None]], None]
"""Changes the memory in the background: the name of the change, and the function that makes it."""


class NoMemory(RuntimeError):
    """The agent was made without a memory."""


class CallerFacts:
    """What is known of the caller of one call.

    memory: where it is kept, None for nowhere. caller: the caller's number or name, "" for an unknown caller,
    of whom nothing is kept after the call. write: makes a change of the memory in the background, in order.
    known: the facts of earlier calls.
    """

    def __init__(
        self,
        memory: Memory | None = None,
        caller: str = "",
        write: Write = lambda what, change: None,
        known: Mapping[str, str] | None = None,
    ) -> None:
        self._memory = memory
        self._caller = caller
        self._write = write
        self._known = dict(known or {})
        self._facts = dict(self._known)

    @property
    def facts(self) -> Mapping[str, str]:
        """All facts, also those of this call."""
        return MappingProxyType(self._facts)

    def remember(self, key: str, value: str) -> None:
        """Keep a fact. Raises NoMemory, and ValueError for an empty or too long name or value."""
        memory = self._need()
        key, value = " ".join(key.split()), " ".join(value.split())
        for text, most in ((key, FACT_NAME_CHARACTERS), (value, FACT_CHARACTERS)):
            if not 0 < len(text) <= most:
                raise ValueError(
                    f"a fact needs 1 to {most} characters, and this has {len(text)}: {text[:40]!r}"
                )
        self._facts[key] = value
        if self._caller:
            self._write("remember", lambda: memory.remember(self._caller, key, value))

    def forget(self) -> None:
        """Delete all facts about the caller. Raises NoMemory."""
        memory = self._need()
        self._facts.clear()
        self._known.clear()
        if self._caller:
            self._write("forget", lambda: memory.forget(self._caller))

    def added_to(self, instructions: str) -> str:
        """Return the instructions with the facts of earlier calls."""
        if not self._known:
            return instructions
        return KNOWN.format(
            instructions=instructions,
            facts="\n".join(f"- {key}: {value}" for key, value in self._known.items()),
        ).strip()

    def _need(self) -> Memory:
        if self._memory is None:
            raise NoMemory(
                'this agent has no memory: make it with Agent(memory=SqliteMemory("memory.sqlite"))'
            )
        return self._memory
