"""Holds the connections with the MCP servers that the client of one call has named."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from rejoinder.agent.app.tool import TOOL_TIMEOUT_S, ToolError
from rejoinder.agent.wires.commands import CallRemoteTool, ListTools, Result, ToolReturned, ToolsListed

if TYPE_CHECKING:
    from rejoinder.agent.app.mcp.connection import McpConnection

log = logging.getLogger(__name__)

LIST_S = 30.0
"""Longest wait for the tools of a server, in seconds."""
NOT_LISTED = "the server's tools have not been listed"
"""Error message for a call of a server whose connection has ended."""
REMOTE_CALL_FAILED = "the call failed; the operator can read why"
"""Error message for a failure of ours, which the log explains."""


class RemoteServers:
    """The servers of one call. deliver: takes each result."""

    def __init__(self, tasks: asyncio.TaskGroup, deliver: Callable[[Result], Awaitable[None]]) -> None:
        self._tasks = tasks
        self._deliver = deliver
        self._open: dict[str, tuple[McpConnection, asyncio.Task[None]]] = {}
        self._running: set[asyncio.Task[None]] = set()

    def list_tools(self, asked: ListTools) -> None:
        """Connect to a server and deliver its tools. It replaces the one of the same label."""
        self._close(asked.label)
        self._start(self._list(asked), f"mcp-list-{asked.label}")

    def call_tool(self, asked: CallRemoteTool) -> None:
        """Call a tool of a server and deliver the result."""
        self._start(self._call(asked), f"mcp-call-{asked.label}")

    def close(self) -> None:
        """End all connections and calls."""
        for task in self._running:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self._tasks.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _list(self, asked: ListTools) -> None:
        from rejoinder.agent.app.mcp.connection import McpConnection
        from rejoinder.agent.app.mcp.server import McpServer

        def changed() -> None:
            if connection.tried.is_set():  # the first list is delivered below
                self._start(self._list_again(asked, connection), f"mcp-list-{asked.label}")

        server = McpServer.http(
            asked.url, name=asked.label, headers=asked.headers, public_only=asked.public_only
        )
        connection = McpConnection(server, changed)
        running = self._start(connection.run(), f"mcp-{asked.label}")
        self._open[asked.label] = connection, running
        error = f"no answer within {LIST_S:g} s"
        try:
            async with asyncio.timeout(LIST_S):
                await connection.tried.wait()
            error = connection.failure
        except TimeoutError:
            pass
        if self._open.get(asked.label) != (connection, running):  # replaced in between
            return
        if error:
            self._close(asked.label)
        await self._deliver(ToolsListed(asked.label, asked.item, [] if error else _shown(connection), error))

    async def _list_again(self, asked: ListTools, connection: McpConnection) -> None:
        """Deliver the tools of a server whose list has changed, unless another server has its label now."""
        if (known := self._open.get(asked.label)) and known[0] is connection:
            await self._deliver(ToolsListed(asked.label, asked.item, _shown(connection), ""))

    async def _call(self, asked: CallRemoteTool) -> None:
        from rejoinder.agent.app.mcp.connection import McpCallError
        from rejoinder.agent.app.mcp.listing import object_of

        connection, _ = self._open.get(asked.label) or (None, None)
        kind, code = "tool_execution_error", 0
        try:
            if connection is None:
                raise ToolError(NOT_LISTED)
            async with asyncio.timeout(TOOL_TIMEOUT_S):
                text = await connection.call(asked.tool, **object_of(asked.arguments or "{}"))
            kind = ""
        except McpCallError as error:
            text, kind, code = str(error), error.kind, error.code
        except ToolError as error:
            text = str(error)
        except TimeoutError:
            text = f"The tool {asked.tool} did not finish within {TOOL_TIMEOUT_S:g} s."
        except Exception:
            log.exception("the MCP tool %s of %s failed", asked.tool, asked.label)
            text = REMOTE_CALL_FAILED
        await self._deliver(ToolReturned(asked.id, text, kind, code))

    def _close(self, label: str) -> None:
        if label in self._open:
            self._open.pop(label)[1].cancel()


def _shown(connection: McpConnection) -> list[dict[str, Any]]:
    return [tool.model_dump(by_alias=True, exclude_none=True) for tool in connection.listed]


@asynccontextmanager
async def remote_servers(deliver: Callable[[Result], Awaitable[None]]) -> AsyncIterator[RemoteServers]:
    """Hold the servers of one call for the length of the block.

    Its end, and cancelling it, end their connections and calls.
    """
    async with asyncio.TaskGroup() as tasks:
        servers = RemoteServers(tasks, deliver)
        try:
            yield servers
        finally:
            servers.close()
