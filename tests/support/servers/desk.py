"""A real MCP server, written with the SDK: python desk.py stdio | http PORT [legacy].

JOURNAL in the environment names a file that it writes what happened to. ``legacy`` refuses the protocol of
2026-07-28, so that a client falls back to the handshake and the notifications of 2025.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    METHOD_NOT_FOUND,
    CallToolResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from typing_extensions import TypedDict

server = MCPServer("Desk", log_level="WARNING")


def note(line: str) -> None:
    if path := os.environ.get("JOURNAL"):
        with Path(path).open("a") as journal:
            journal.write(line + "\n")


class Weather(TypedDict):
    city: str
    degrees: float


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    note(f"add {a} {b}")
    return a + b


@server.tool()
async def weather(city: str) -> CallToolResult:
    """Tell the weather, as structured content only."""
    return CallToolResult(content=[], structured_content={"city": city, "degrees": 21.5})


@server.tool(name="look.up")
async def look_up() -> CallToolResult:
    """Return a resource, a link and a picture."""
    return CallToolResult(
        content=[
            TextContent(text="Found:"),
            EmbeddedResource(resource=TextResourceContents(uri="file:///hours.md", text="Open from nine.")),
            ResourceLink(name="prices", uri="file:///prices.md", description="All prices"),
            Image(data=b"\x89PNG", format="png").to_image_content(),
        ]
    )


@server.tool()
async def slow(seconds: float) -> str:
    """Wait."""
    note("slow begun")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("slow cancelled")
        raise
    note("slow done")
    return "waited"


@server.tool()
async def fail() -> str:
    """Fail with a reason for the model."""
    raise ToolError("the printer is out of paper")


@server.tool()
async def huge(characters: int) -> str:
    """Return a long text."""
    return "x" * characters


async def grown() -> str:
    """Answer, once the list has grown."""
    return "grown indeed"


@server.tool()
async def grow(ctx: Context[Any, Any]) -> str:
    """Add a tool to the list."""
    server.add_tool(grown)
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "there is a tool more"


@server.tool()
async def die() -> str:
    """End the process at once."""
    note("died")
    os._exit(1)


@server.tool()
async def secret() -> str:
    """Return what no agent may know."""
    note("secret told")
    return "42"


async def serve_old_stdio() -> None:
    """Serve the handshake of 2025 only."""
    inner = server._lowlevel_server
    async with stdio_server() as (read, write), inner.lifespan(inner) as state:
        await serve_loop(inner, read, write, lifespan_state=state)


async def refuse_discovery(ctx: Any, call_next: Any) -> Any:
    if ctx.method == "server/discover":
        raise MCPError(METHOD_NOT_FOUND, "Method not found")
    return await call_next(ctx)


if __name__ == "__main__":
    note(f"started {os.getpid()}")
    if sys.argv[1] == "http":
        if "legacy" in sys.argv:
            server.middleware.append(refuse_discovery)
        server.run("streamable-http", port=int(sys.argv[2]))
    elif "legacy" in sys.argv:
        asyncio.run(serve_old_stdio())
    else:
        server.run("stdio")
