"""Tools and token limits that clients of the OpenAI Realtime protocol set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from rejoinder.agent.wires.failures import NO_CALLS
from rejoinder.agent.wires.realtime.shapes import Base
from rejoinder.pipeline import ProtocolError, Tools


class Function(Base):
    """A function that the client runs; ``parameters`` is a JSON schema."""

    type: Literal["function"]
    name: str = Field(pattern="^[a-zA-Z0-9_-]+$", max_length=64)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Named(Base):
    """The function that the model must call."""

    type: Literal["function"]
    name: str = Field(max_length=64)


Choice = Literal["auto", "none", "required"] | Named
MostTokens = Annotated[int, Field(ge=1, le=4096)] | Literal["inf"]
"""Most tokens of a response, in OpenAI's type."""


def most_tokens(given: MostTokens) -> int:
    """Return the most tokens of a reply, 0 for no limit."""
    return 0 if given == "inf" else given


def tools_of(
    functions: Sequence[Function], choice: Choice, can_call: bool, where: str, parallel: bool = True
) -> Tools:
    """Return the tools for the language model.

    where: the field that has the tools. parallel: whether one response may call several. Raises ProtocolError
    where the model cannot call tools, or the chosen tool does not exist.
    """
    if not functions or choice == "none":
        return Tools()
    if not can_call:
        raise ProtocolError(NO_CALLS, "tools_not_supported", f"{where}.tools")
    named: str | dict[str, Any]
    if isinstance(choice, Named):
        if choice.name not in [function.name for function in functions]:
            reason = f"there is no tool {choice.name} to choose"
            raise ProtocolError(reason, "invalid_value", f"{where}.tool_choice.name")
        named = {"type": "function", "function": {"name": choice.name}}
    else:
        named = choice
    return Tools([_chat_shape(function) for function in functions], named, parallel)


def _chat_shape(one: Function) -> dict[str, Any]:
    about = {"description": one.description, "parameters": one.parameters}
    function = {"name": one.name, **{name: value for name, value in about.items() if value is not None}}
    return {"type": "function", "function": function}
