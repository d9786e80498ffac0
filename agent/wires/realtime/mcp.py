"""Tools of MCP servers that a client names, and the servers that the operator allows.

The shapes and the rules are those of OpenAI's guide "Realtime with tools",
https://developers.openai.com/api/docs/guides/realtime-mcp.
"""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from rejoinder.agent.wires.realtime.shapes import EchoedModel
from rejoinder.pipeline import ProtocolError

NOT_ALLOWED = "this server's operator does not allow the MCP server {url}: see the setting allowed_mcp_urls"
"""Error message for a URL that is not in the setting."""
OWN_HEADERS = ("host", "connection", "content-length", "content-type", "transfer-encoding", "accept", "te")
"""Headers that a client may not set: they belong to the transport. Those that begin with ``mcp-`` do, too."""
ANY = "*"
"""Value of the setting that allows all servers."""
SECRET_FIELDS = ("authorization", "headers")
"""Fields that are not sent back to the client: they hold secrets."""


class ToolFilter(EchoedModel):
    """A choice of tools: by their names, or whether they only read (their ``readOnlyHint``)."""

    tool_names: list[str] | None = None
    read_only: bool | None = None

    def fits(self, tool: dict[str, Any]) -> bool:
        """Return whether a tool is chosen."""
        read_only = bool((tool.get("annotations") or {}).get("readOnlyHint"))
        named = self.tool_names is None or tool["name"] in self.tool_names
        return named and self.read_only in (None, read_only)


class ApprovalFilter(EchoedModel):
    """The tools whose calls the client approves, and those that run at once. The others need approval."""

    always: ToolFilter | None = None
    never: ToolFilter | None = None


class McpTool(EchoedModel):
    """The tools of one MCP server. A ``server_label`` alone refers to a server that was named earlier.

    The server gets ``authorization`` as a bearer token.
    """

    type: Literal["mcp"]
    server_label: str = Field(pattern="^[a-zA-Z0-9_-]+$", max_length=64)
    server_url: str | None = Field(None, max_length=2048)
    authorization: str | None = Field(None, max_length=8192)
    headers: dict[str, str] | None = Field(None, max_length=64)
    allowed_tools: list[str] | ToolFilter | None = None
    require_approval: Literal["always", "never"] | ApprovalFilter | None = None
    connector_id: str | None = None
    tunnel_id: str | None = None

    @property
    def sent(self) -> dict[str, str]:
        """The headers of each request to the server."""
        given = {name.lower(): value for name, value in (self.headers or {}).items()}
        return given | ({"authorization": f"Bearer {self.authorization}"} if self.authorization else {})

    def allows(self, tool: dict[str, Any]) -> bool:
        """Return whether the model may call a tool."""
        allowed = self.allowed_tools
        if isinstance(allowed, list):
            allowed = ToolFilter(tool_names=allowed)
        return allowed is None or allowed.fits(tool)

    def asks(self, tool: dict[str, Any]) -> bool:
        """Return whether each call of a tool waits for the client's approval, which is the default."""
        asks = self.require_approval
        if isinstance(asks, ApprovalFilter):
            return not (asks.never and asks.never.fits(tool)) or bool(asks.always and asks.always.fits(tool))
        return asks != "never"

    def check(self, param: str, allowed: str) -> None:
        """Raise ProtocolError for a server that cannot be reached from here, or that is not allowed.

        allowed: the setting ``allowed_mcp_urls``.
        """
        if self.connector_id or self.tunnel_id:
            reason = "connectors and tunnels are services of OpenAI: name the server by its server_url"
            field = "connector_id" if self.connector_id else "tunnel_id"
            raise ProtocolError(reason, "unsupported_content", f"{param}.{field}")
        if self.server_url is None:
            reason = f"there is no MCP server {self.server_label} yet: name it by its server_url first"
            raise ProtocolError(reason, "missing_required_parameter", f"{param}.server_url")
        if not is_allowed(self.server_url, allowed):
            reason = NOT_ALLOWED.format(url=self.server_url)
            raise ProtocolError(reason, "mcp_server_not_allowed", f"{param}.server_url")
        names = {name.lower() for name in self.headers or {}}
        if "authorization" in names and self.authorization:
            reason = "send either authorization or the header Authorization"
            raise ProtocolError(reason, "invalid_value", f"{param}.authorization")
        for name in names:
            if name in OWN_HEADERS or name.startswith("mcp-"):
                raise ProtocolError(f"the header {name} is set here", "invalid_value", f"{param}.headers")


def is_allowed(url: str, allowed: str) -> bool:
    """Return whether the operator allows a URL.

    allowed: URLs separated by blanks; each allows itself and what is below its path. ``*`` allows all that
    are at public addresses.
    """
    return is_named(url, allowed) or (ANY in allowed.split() and _parts(url) is not None)


def is_named(url: str, allowed: str) -> bool:
    """Return whether the operator names a URL, or one above it. It may then be at a private address."""
    wanted = _parts(url)
    if wanted is None:
        return False
    for one in allowed.split():
        given = _parts(one)
        if given and given[:-1] == wanted[:-1]:
            below = given[-1].rstrip("/") + "/"
            if wanted[-1] == given[-1] or wanted[-1].startswith(below):
                return True
    return False


def _parts(url: str) -> tuple[str, str, int | None, str] | None:
    """Return scheme, host, port and path of a URL; None for one whose meaning is not plain.

    Two libraries may read a strange URL differently: one checks it, and the other one opens it.
    """
    if not url.isascii() or any(char in url for char in "\\@#%") or not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or ".." in parts.path.split("/"):
        return None
    usual = {"http": 80, "https": 443}[parts.scheme]
    return parts.scheme, parts.hostname, port or usual, parts.path or "/"
