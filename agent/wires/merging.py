"""Merge one JSON object into another, as ``session.update`` does."""

from __future__ import annotations

from typing import Any


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return ``old`` updated with ``new``, object by object.

    An object of another ``type`` replaces the old one.
    """
    result = dict(old)
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            if value.get("type", before.get("type")) == before.get("type"):
                value = merged(before, value)
        result[name] = value
    return result
