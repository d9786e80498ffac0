"""Exceptions of an agent's code in a simulated call."""

from __future__ import annotations

from dataclasses import dataclass

from rejoinder.agent.app.functions.places import said_of


@dataclass(frozen=True, slots=True)
class CodeFailure:
    """An exception of the agent's code. A real call goes on after it, and its server logs it.

    what: the hook or the tool that raised it, such as "on_turn". at: when, in virtual seconds.
    """

    what: str
    error: Exception
    at: float

    def __str__(self) -> str:
        return f"{self.what} failed: {said_of(self.error)}"
