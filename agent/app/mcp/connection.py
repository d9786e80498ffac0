"""The connection with one MCP server: opened again when it breaks, with the list of its tools kept fresh."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import anyio
import mcp.types as types
from mcp import Client, MCPError
from mcp.client import IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.server import MCPServer

from rejoinder.agent.app.mcp.listing import MAX_TOOLS, text_of, tools_of
from rejoinder.agent.app.mcp.server import McpServer
from rejoinder.agent.app.mcp.watched import watched
from rejoinder.agent.app.tool import Tool, ToolError, shortened
from rejoinder.pipeline.errors import first_error

log = logging.getLogger(__name__)

MCP_ANSWER_S = 15.0
"""Longest wait for an answer that is not a tool's, in seconds."""
REFRESH_S = 60.0
"""Interval of listing the tools without a reason, in seconds: it notices a server that has gone silently."""
RELIST_S = 0.1
"""Shortest wait between two lists of the tools, in seconds: a server may send changes without end."""
MAX_PAGES = 20
"""Most pages of a list of tools; a faulty server may go on for ever."""
FIRST_WAIT_S = 0.5
"""Shortest wait before the connection is opened again, in seconds. Each further one doubles it."""
LONGEST_WAIT_S = 30.0
"""Longest wait before the connection is opened again, in seconds."""
GRACE_S = 2.0
"""Time for a tool's cancellation to reach the server before the SDK's own time-out, in seconds."""


class McpCallError(ToolError):
    """A call did not reach its tool. kind: protocol_error or http_error, as in OpenAI's Realtime protocol."""

    def __init__(self, text: str, kind: str, code: int) -> None:
        super().__init__(text)
        self.kind = kind
        self.code = code


class McpConnection:
    """Holds one server open. changed: called when the tools have changed.

    tools: by the names of the language model. They stay while the server is away. listed: the server's own
    list, allowed or not. tried: set once the server has answered or failed for the first time. failure: why
    it cannot be reached, "" while it can.
    """

    def __init__(self, server: McpServer, changed: Callable[[], None] = lambda: None) -> None:
        self.server = server
        self.tools: dict[str, Tool] = {}
        self.listed: list[types.Tool] = []
        self.tried = anyio.Event()
        self.failure = "not connected yet"
        self._changed = changed
        self._client: Client | None = None
        self._lost = anyio.Event()
        self._stale = anyio.Event()
        self._connected = anyio.Event()
        self._forgotten = False

    async def run(self) -> None:
        """Keep the connection open until cancelled. Cancelling closes it, and ends the server's process."""
        failed = 0
        while True:
            self._lost, self._stale, self._forgotten = anyio.Event(), anyio.Event(), False
            opened = anyio.current_time()
            try:
                async with self._new_client() as client:
                    await self._serve(client)
                self.failure = "the connection has ended"
            except Exception as error:
                cause = first_error(error)
                self.failure = str(cause) or type(cause).__name__
            self.tried.set()
            failed = 0 if anyio.current_time() - opened > LONGEST_WAIT_S else failed + 1
            wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** (failed - 1)) * random.uniform(0.75, 1.25)
            log.warning("MCP server %s: %s; again in %.1f s", self.server.name, self.failure, wait_s)
            await anyio.sleep(wait_s)

    async def call(self, tool: str, /, **arguments: Any) -> str:
        """Run a tool of the server and return its result as text.

        Raises ToolError, with words for the language model: the tool's own error, or that the server is away.
        Cancelling cancels the tool on the server.
        """
        try:
            result = await self._ask(tool, arguments)
        except MCPError as error:
            self._stale.set()  # to list the tools finds out whether the server is still there
            if error.code == types.CONNECTION_CLOSED:
                raise McpCallError(
                    f"The connection to {self.server.name} broke while {tool} ran. Whether it has done its "
                    "work is not known: check before you call it again, and tell the caller.",
                    "http_error",
                    error.code,
                ) from None
            reason = shortened(f"{self.server.name} refused the call: {error.message}")
            raise McpCallError(reason, "protocol_error", error.code) from None
        if result.is_error:
            raise ToolError(text_of(result))
        return text_of(result)

    async def _ask(self, tool: str, arguments: dict[str, Any]) -> types.CallToolResult:
        """Call a tool; once more where the server had forgotten the session, and so has not run it."""
        rules = self.server.rules_by_tool.get(tool, self.server.rules)
        for again in (True, False):
            client = self._client
            if client is None:
                raise McpCallError(
                    f"{self.server.name} cannot be reached now. Tell the caller that this does not work at "
                    "the moment; you may try again later.",
                    "http_error",
                    types.CONNECTION_CLOSED,
                )
            try:
                return await client.call_tool(tool, arguments, rules.timeout_s + GRACE_S)
            except MCPError as error:
                if not again or not self._forgotten or error.code == types.CONNECTION_CLOSED:
                    raise
                connected = self._connected
                self._lose()
                await connected.wait()
        raise AssertionError  # the second try returns or raises

    def _new_client(self) -> Client:
        target = self.server.target(self._forget)
        if not isinstance(target, MCPServer):
            target = watched(target, self._lose)
        return Client(target, read_timeout_seconds=MCP_ANSWER_S, message_handler=self._note, cache=None)

    def _forget(self) -> None:
        self._forgotten = True

    def _lose(self) -> None:
        self._client = None
        self._lost.set()

    async def _note(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._stale.set()

    async def _serve(self, client: Client) -> None:
        """List the tools, and again when they change, until the connection is lost. Raises MCPError."""
        await self._list(client)
        self._client, self.failure = client, ""
        connected, self._connected = self._connected, anyio.Event()
        connected.set()
        self.tried.set()
        log.info("MCP server %s: connected, %d tools", self.server.name, len(self.tools))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._listen, client)
                tasks.start_soon(self._refresh, client)
                await self._lost.wait()
                tasks.cancel_scope.cancel()
        finally:
            self._client = None

    async def _refresh(self, client: Client) -> None:
        while True:
            with anyio.move_on_after(REFRESH_S):
                await self._stale.wait()
            self._stale = anyio.Event()
            await self._list(client)
            await anyio.sleep(RELIST_S)

    async def _listen(self, client: Client) -> None:
        """Hold the stream of changes open, which servers since 2026-07-28 have; older ones just send them."""
        wait_s = FIRST_WAIT_S
        while True:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._stale.set()
            except (ListenNotSupportedError, MCPError, SubscriptionLost, TimeoutError) as error:
                if isinstance(error, ListenNotSupportedError):
                    return
            self._stale.set()  # a change may have been missed, and a server that has gone is noticed
            await anyio.sleep(wait_s)
            wait_s = min(REFRESH_S, 2.0 * wait_s)

    async def _list(self, client: Client) -> None:
        """Take the server's list of tools. Raises MCPError."""
        listed: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            listed += page.tools
            cursor = page.next_cursor
            if cursor is None or len(listed) > MAX_TOOLS:
                break
        if listed == self.listed:
            return
        self.listed = listed
        self.tools = tools_of(self.server, listed, self.call)
        for name in sorted((self.server.allow or frozenset()) - {one.name for one in listed}):
            log.warning("MCP server %s has no tool %s, which is allowed", self.server.name, name)
        if len(listed) > MAX_TOOLS:
            log.warning(
                "MCP server %s has more than %d tools: allow the ones to use", self.server.name, MAX_TOOLS
            )
        self._changed()
