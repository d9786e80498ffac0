"""The MCP servers of one agent, open for as long as the agent's host runs."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio

from rejoinder.agent.app.mcp.connection import McpConnection
from rejoinder.agent.app.mcp.server import McpServer
from rejoinder.agent.app.tool import Tool

log = logging.getLogger(__name__)

OPEN_S = 10.0
"""Longest wait for all servers when the host starts, in seconds; a server that is later joins later."""


class McpServers:
    """Opens the servers once, for all calls.

    tools: is filled with the tools of all servers, by name. changed: called when they change.
    """

    def __init__(
        self, servers: Sequence[McpServer], tools: dict[str, Tool], changed: Callable[[], None]
    ) -> None:
        self._tools = tools
        self._changed = changed
        self._connections = [McpConnection(server, self._take) for server in servers]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the servers open for the length of the block. Cancelling closes them."""
        async with anyio.create_task_group() as tasks:
            for connection in self._connections:
                tasks.start_soon(connection.run, name=f"mcp-{connection.server.name}")
            with anyio.move_on_after(OPEN_S):
                for connection in self._connections:
                    await connection.tried.wait()
            for connection in self._connections:
                if connection.failure:
                    log.error("MCP server %s: %s", connection.server.name, connection.failure)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    def _take(self) -> None:
        found = {name: tool for one in self._connections for name, tool in one.tools.items()}
        self._tools.clear()
        self._tools.update(found)
        self._changed()
