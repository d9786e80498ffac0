"""The result of a tool, for the language model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rejoinder.agent.app.agent import Agent

TOOL_FAILED = (
    "The tool failed, for a reason that only the operator can read. Tell the caller that it did not work."
)
"""The result of a tool that raised an exception. Its text may hold secrets, so the model does not get it."""
TAKEN_OVER = "You have the call now. What was said before, another agent has said. Go on with the call."
"""The result of a tool that hands the call to another agent, for that agent's language model."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool.

    successor: the agent that takes the call over, None for none. wrong: whether it is an error that the model
    can mend. failed: whether the tool raised another exception.
    """

    text: str
    successor: Agent[Any, Any] | None = None
    wrong: bool = False
    failed: bool = False

    @property
    def outcome(self) -> str:
        """How the run ended: completed, wrong or failed."""
        return "failed" if self.failed else "wrong" if self.wrong else "completed"


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A run of one of the agent's tools has ended, or the client has returned the result of its own.

    id: of its ``ToolCall``. outcome: completed, wrong, failed or cancelled; client for its own. result: for
    the language model, "" for a cancelled one.
    """

    id: str
    outcome: str
    result: str = field(default="", repr=False)
