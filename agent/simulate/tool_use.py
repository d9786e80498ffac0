"""One run of a tool in a simulated call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class ToolUse:
    """A call of a tool by the language model, and what came of it. Two are equal by name and arguments.

    result: what the model read, "" while the tool runs. at: when it began, in virtual seconds. seconds: how
    long it ran. status: "done", "error" (the model read why), "failed" (an exception), "cancelled" or
    "running". error: the exception of a tool that failed.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result: str = field(default="", compare=False)
    at: float = field(default=0.0, compare=False)
    seconds: float = field(default=0.0, compare=False)
    status: str = field(default="running", compare=False)
    error: Exception | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.name}({given})"

    def fits(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether the call has this name and at least these arguments."""
        return self.name == name and all(
            one in self.arguments and self.arguments[one] == value for one, value in arguments.items()
        )

    def lines(self) -> list[tuple[float, str]]:
        """Return the lines of the timeline about this call, with their times in seconds."""
        begun = (self.at, f"tool {self}")
        if self.status == "running":
            return [begun]
        ended = self.at + self.seconds
        return [begun, (ended, f"tool {self.name} {self.status} after {self.seconds:.2f} s: {self.result}")]


def arguments_of(text: str) -> dict[str, Any]:
    """Return the arguments that a model wrote as JSON; as ``{"": text}`` where it wrote something else."""
    try:
        read = json.loads(text or "{}")
    except ValueError:
        read = text
    return read if isinstance(read, dict) else {"": text}


def called(uses: Sequence[ToolUse], name: str, arguments: Mapping[str, Any]) -> ToolUse:
    """Return the last call of a tool with at least these arguments. Raises AssertionError without one."""
    fitting = [use for use in uses if use.fits(name, arguments)]
    if not fitting:
        wanted = ToolUse(name, arguments)
        raise AssertionError(
            f"{wanted} was not called; called were: {', '.join(map(str, uses)) or 'no tools'}"
        )
    return fitting[-1]
