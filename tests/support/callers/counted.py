"""Callers at the limits of one server, without a socket: they ask, and are counted if they may begin."""

from __future__ import annotations

from rejoinder.agent.server.limiting.allowance import CallRefused
from rejoinder.agent.server.limiting.limits import Limits


def begin(limits: Limits, owner: str, now: float) -> CallRefused | None:
    """Begin a call, or return why it may not begin."""
    if refused := limits.refusal(owner, now):
        return refused
    limits.count_request(owner, now)
    limits.count_call(owner)
    return None


def ask(limits: Limits, owner: str, now: float) -> CallRefused | None:
    """Make a text request, or return why it may not be made."""
    if refused := limits.refusal(owner, now, call=False):
        return refused
    limits.count_request(owner, now)
    return None
