"""Identifiers of calls, sessions, items and events."""

from __future__ import annotations

import secrets


def new_id(kind: str) -> str:
    """Return a new identifier such as ``item_3f…``."""
    return f"{kind}_{secrets.token_hex(10)}"


def new_conversation() -> str:
    """Return an identifier that cannot be guessed: 256 random bits."""
    return f"conv_{secrets.token_hex(32)}"
