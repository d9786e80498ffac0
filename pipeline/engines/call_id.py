"""The id of the call that a piece of work is for, so that log lines of any task and engine can name it."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar

current: ContextVar[str] = ContextVar("call_id", default="")
"""The id of the current task's call, "" outside of calls; the tasks that it starts inherit it.

An engine sets it in its thread for each step: to the ids of all calls in the batch, separated by blanks.
"""


def joined(ids: Iterable[str]) -> str:
    """Return the ids without repetitions, separated by blanks."""
    return " ".join(dict.fromkeys(filter(None, ids)))
