"""One object into another, as ``session.update`` does it."""

from __future__ import annotations

from typing import Any


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return ``old`` with what ``new`` says, object by object; one of another ``type`` replaces it."""
    result = dict(old)
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            if value.get("type", before.get("type")) == before.get("type"):
                value = merged(before, value)
        result[name] = value
    return result
