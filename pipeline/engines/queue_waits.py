"""The time that the jobs of one call have waited in engines."""

from __future__ import annotations

from contextvars import ContextVar

current: ContextVar[dict[str, float] | None] = ContextVar("queue_waits", default=None)
"""Seconds by name of an engine, for the current task's call; None where the waits are not counted.

The tasks of the call inherit it. Each engine's thread writes its own entry, so nothing has to be locked.
"""
