"""The tools of an MCP server as tools of an agent: their names, and their results as text."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any

import mcp.types as types

from rejoinder.agent.app.mcp.naming import MAX_NAME_CHARS, model_name
from rejoinder.agent.app.mcp.server import McpServer
from rejoinder.agent.app.tool import MAX_RESULT, Tool, ToolError, shortened

MAX_DESCRIPTION = 4_000
"""Most characters of a tool's description: every prompt has it."""
MAX_TOOLS = 128
"""Most tools of one server, as in OpenAI's chat API."""
NO_TEXT = "Done."
"""The result of a tool that returns nothing."""


def tools_of(
    server: McpServer, listed: Iterable[types.Tool], call: Callable[..., Awaitable[str]]
) -> dict[str, Tool]:
    """Return the allowed tools of a server, by the names that the language model uses.

    call: runs a tool; it takes the server's name of the tool, and the arguments by name.
    """
    tools: dict[str, Tool] = {}
    for one in listed:
        if server.allow is not None and one.name not in server.allow:
            continue
        rules = server.rules_by_tool.get(one.name, server.rules)
        name = _unused(tools, model_name(server.name, one.name))
        about = shortened(one.description or one.title or one.name, MAX_DESCRIPTION)
        tools[name] = Tool(
            name,
            about,
            partial(call, one.name),
            one.input_schema,
            object_of,
            timeout_s=rules.timeout_s,
            background=rules.background,
            durable=rules.durable,
        )
        if len(tools) == MAX_TOOLS:
            break
    return tools


def _unused(taken: dict[str, Tool], name: str) -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name[: MAX_NAME_CHARS - 4]}_{number}", number + 1
    return free


def object_of(text: str) -> dict[str, Any]:
    """Return arguments from a JSON object; the server checks them by its schema. Raises ToolError."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ToolError(
            f"The arguments are not JSON: {error}. Correct them and call the tool again."
        ) from None
    if not isinstance(given, dict):
        raise ToolError("The arguments must be a JSON object. Correct them and call the tool again.")
    return given


def text_of(result: types.CallToolResult) -> str:
    """Return the result of a tool as text, of at most ``MAX_RESULT`` characters.

    Structured content is used where there is no text: a server repeats it as text (MCP specification of
    2025-06-18, "Structured Content"). An image or a sound is only named: the language model reads text.
    """
    parts: list[str] = []
    length = 0
    for part in _parts(result):
        parts.append(part)
        length += len(part)
        if length > MAX_RESULT:
            break
    return shortened("\n".join(parts) or NO_TEXT)


def _parts(result: types.CallToolResult) -> Iterator[str]:
    readable = False
    for block in result.content:
        match block:
            case types.TextContent(text=text):
                readable = True
                yield text
            case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
                readable = True
                yield f"{resource.uri}:\n{resource.text}"
            case types.EmbeddedResource(resource=resource):
                yield f"(a file that cannot be read here: {resource.uri}, {resource.mime_type or 'binary'})"
            case types.ResourceLink():
                readable = True
                yield ": ".join(
                    one for one in (block.title or block.name, block.description, block.uri) if one
                )
            case types.ImageContent() | types.AudioContent():
                yield f"(an item that cannot be read here: {block.mime_type})"
    if result.structured_content is not None and not readable:
        yield json.dumps(result.structured_content, ensure_ascii=False)
