"""Identifiers that all wires use."""

from __future__ import annotations

import secrets


def new_id(kind: str) -> str:
    """Return a new identifier such as ``item_3f…``."""
    return f"{kind}_{secrets.token_hex(10)}"
