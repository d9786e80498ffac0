"""The guard of one call: the agent's or the server's rules, and the agent's own functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from rejoinder.agent.app.call import Call
from rejoinder.pipeline import Guard, Judge, ModelError

Run = Callable[..., Awaitable[Any]]
"""Calls a function of the integrator with its arguments (``AgentHost.run_guard``)."""


def clause_guard(call: Call, run: Run) -> Guard | None:
    """Return the guard of a call with the functions of ``Agent.guard``, None for none."""
    guard, functions = call.options.guard, call.agent.hooks.guard if call.agent else ()
    if not functions:
        return guard
    guard = guard or Guard()
    judges = [*guard.judges, *(_judge(call, function, run) for function in functions)]
    return replace(guard, judges=judges, identity="")


def _judge(call: Call, function: Callable[..., Any], run: Run) -> Judge:
    async def judge(text: str) -> str:
        reason = await run(function, call, text)
        if reason is not None and not isinstance(reason, str):
            name = getattr(function, "__name__", type(function).__name__)
            raise ModelError(name, f"returned {reason!r:.20}: return why the clause is refused, or None")
        return reason or ""

    return judge
