"""An MCP server whose tools an agent may call: how to reach it, and which of its tools are allowed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TypeAlias
from urllib.parse import urlsplit

import httpx2
from mcp import StdioServerParameters, stdio_client
from mcp.client import Transport
from mcp.server import MCPServer

from rejoinder.agent.app.mcp.http import open_http
from rejoinder.agent.app.tool import TOOL_TIMEOUT_S

Target: TypeAlias = Transport | MCPServer
"""What the SDK's client connects to."""
Opening: TypeAlias = Callable[[Callable[[], None]], Target]
"""Returns a new target. It takes what is called when the server has forgotten the session (HTTP only)."""


@dataclass(frozen=True, slots=True)
class ToolRules:
    """The rules of one tool of an MCP server; they mean what they mean for a ``Tool``."""

    timeout_s: float = TOOL_TIMEOUT_S
    background: bool = False
    durable: bool = False


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server. ``stdio``, ``http`` and ``in_process`` make one.

    name: begins the names of its tools, so that those of several servers differ. allow: the tools that the
    agent may call, by the server's names; None for all. rules: of every tool that ``rules_by_tool`` does not
    name.
    """

    name: str
    target: Opening = field(repr=False)
    allow: frozenset[str] | None = None
    rules: ToolRules = ToolRules()
    rules_by_tool: Mapping[str, ToolRules] = field(default_factory=dict)

    @classmethod
    def stdio(
        cls,
        command: str,
        *arguments: str,
        name: str = "",
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        allow: Collection[str] | None = None,
        timeout_s: float = TOOL_TIMEOUT_S,
        rules: Mapping[str, ToolRules] | None = None,
    ) -> McpServer:
        """Return a server that this program starts as a process of its own.

        name: "" for the first word behind the command that is no option. env: variables besides the few that
        the SDK passes on (PATH, HOME): a server does not get this program's keys. timeout_s: of each tool
        that ``rules`` does not name.
        """
        words = [one for one in arguments if not one.startswith("-")] or [command]
        parameters = StdioServerParameters(
            command=command, args=list(arguments), env=dict(env) if env else None, cwd=cwd
        )
        named = name or PurePath(words[0]).stem
        # The default of the SDK is the sys.stderr at the time of its import, which may be no real file.
        errors = sys.__stderr__ or sys.stderr
        return cls._of(named, lambda _: stdio_client(parameters, errors), allow, timeout_s, rules)

    @classmethod
    def http(
        cls,
        url: str,
        *,
        name: str = "",
        headers: Mapping[str, str] | None = None,
        auth: httpx2.Auth | None = None,
        allow: Collection[str] | None = None,
        timeout_s: float = TOOL_TIMEOUT_S,
        rules: Mapping[str, ToolRules] | None = None,
        public_only: bool = False,
    ) -> McpServer:
        """Return a server behind a URL, by streamable HTTP.

        name: "" for the host. auth: such as one of the SDK's OAuth providers (``mcp.client.auth``). The SDK
        follows redirects within the URL's origin only. public_only: for a URL of a stranger: never connect to
        a private, loopback or link-local address. Raises ValueError for a URL without scheme or host.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url} is not the URL of an MCP server: it begins with http:// or https://")
        named = name or parts.hostname

        def opening(forgotten: Callable[[], None]) -> Transport:
            return open_http(url, headers or {}, auth, forgotten, public_only)

        return cls._of(named, opening, allow, timeout_s, rules)

    @classmethod
    def in_process(
        cls,
        server: MCPServer,
        *,
        name: str = "",
        allow: Collection[str] | None = None,
        timeout_s: float = TOOL_TIMEOUT_S,
        rules: Mapping[str, ToolRules] | None = None,
    ) -> McpServer:
        """Return a server of the SDK that runs in this process, such as in a test in virtual time."""
        return cls._of(name or server.name, lambda _: server, allow, timeout_s, rules)

    @classmethod
    def _of(
        cls,
        name: str,
        target: Opening,
        allow: Collection[str] | None,
        timeout_s: float,
        rules: Mapping[str, ToolRules] | None,
    ) -> McpServer:
        if isinstance(allow, str):
            raise TypeError(f"allow is a list of tools: write allow=[{allow!r}]")
        allowed = None if allow is None else frozenset(allow)
        return cls(name, target, allowed, ToolRules(timeout_s), dict(rules or {}))
