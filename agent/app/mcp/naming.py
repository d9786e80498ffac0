"""Names of MCP servers' tools for the language model."""

from __future__ import annotations

import re

MAX_NAME_CHARS = 64
"""Most characters of a tool's name in OpenAI's chat format; it has letters, digits, _ and - only."""


def model_name(server: str, tool: str) -> str:
    """Return the name of a server's tool for the language model. It begins with that of the server."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}_{tool}")[-MAX_NAME_CHARS:]
