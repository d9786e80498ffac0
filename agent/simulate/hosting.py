"""Runs an agent's functions in a simulated call: time stands still while one of them runs in a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.functions.runner import FunctionRunner, is_coroutine_function
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.simulate.virtual_clock import standing_still


class SimulatedRunner(FunctionRunner):
    """Runs functions of the integrator. A coroutine function sleeps in virtual time."""

    async def run(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function and return its result; raising and cancelling are those of ``FunctionRunner``."""
        if is_coroutine_function(function):
            return await super().run(function, *arguments, **named)
        with standing_still():
            return await super().run(function, *arguments, **named)


def hosted(agent: Agent) -> AgentHost:
    """Return what runs an agent in a simulated call."""
    return AgentHost(agent, SimulatedRunner)
