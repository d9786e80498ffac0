"""Tools and token limits that clients of the OpenAI Realtime protocol set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from rejoinder.agent.wires.realtime.mcp import McpTool
from rejoinder.agent.wires.realtime.shapes import EchoedModel
from rejoinder.pipeline import ProtocolError, Tools

NO_CALLS = (
    "the language model of this server cannot call tools: start it with one that can, "
    "such as --llm openai:http://HOST/v1#MODEL or --llm vllm:Qwen/Qwen3-8B"
)
"""Error message where the language model cannot call tools."""


class Function(EchoedModel):
    """A function that the client runs; ``parameters`` is a JSON schema."""

    type: Literal["function"]
    name: str = Field(pattern="^[a-zA-Z0-9_-]+$", max_length=64)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Named(EchoedModel):
    """The function that the model must call."""

    type: Literal["function"]
    name: str = Field(max_length=64)


Choice = Literal["auto", "none", "required"] | Named
MostTokens = Annotated[int, Field(ge=1, le=4096)] | Literal["inf"]
"""Most tokens of a response, in OpenAI's type."""


def most_tokens(given: MostTokens) -> int:
    """Return the most tokens of a reply, 0 for no limit."""
    return 0 if given == "inf" else given


SessionTool = Annotated[Function | McpTool, Field(discriminator="type")]
"""One of a session's tools: a function of the client, or an MCP server."""


def servers_of(tools: Iterable[SessionTool]) -> list[McpTool]:
    """Return the MCP servers among a session's tools."""
    return [tool for tool in tools if isinstance(tool, McpTool)]


def tools_of(
    tools: Sequence[SessionTool],
    others: Sequence[dict[str, Any]],
    choice: Choice,
    can_call: bool,
    where: str,
    parallel: bool = True,
) -> Tools:
    """Return the tools for the language model.

    others: the tools of MCP servers, in OpenAI's chat format. where: the field that has the tools. parallel:
    whether one response may call several. Raises ProtocolError where the model cannot call tools, or the
    chosen tool does not exist.
    """
    if not tools or choice == "none":
        return Tools()
    if not can_call:
        raise ProtocolError(NO_CALLS, "tools_not_supported", f"{where}.tools")
    functions = [tool for tool in tools if isinstance(tool, Function)]
    names = {function.name for function in functions}
    others = [one for one in others if one["function"]["name"] not in names]
    named: str | dict[str, Any]
    if isinstance(choice, Named):
        if choice.name not in names:
            reason = f"the tool {choice.name} is not in tools"
            raise ProtocolError(reason, "invalid_value", f"{where}.tool_choice.name")
        named = {"type": "function", "function": {"name": choice.name}}
    else:
        named = choice
    found = [*(_chat_shape(function) for function in functions), *others]
    return Tools(found, named, parallel) if found else Tools()


def _chat_shape(one: Function) -> dict[str, Any]:
    about = {"description": one.description, "parameters": one.parameters}
    function = {"name": one.name, **{name: value for name, value in about.items() if value is not None}}
    return {"type": "function", "function": function}
