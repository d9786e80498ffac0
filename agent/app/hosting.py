"""The agent that takes the calls of a server, and those that it has replaced, whose calls go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.giving_up import GiveUp
from rejoinder.agent.app.host import AgentHost

log = logging.getLogger(__name__)


class Hosting:
    """Runs the agent of a server. give_up: as for ``AgentHost``. current: takes new calls."""

    def __init__(self, agent: Agent, give_up: GiveUp | None = None) -> None:
        self.current = AgentHost(agent, give_up=give_up)
        self._tasks: dict[asyncio.Task[None], AgentHost] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the agent for the length of the block. Raises BrokenAgent if its lifespan fails.

        At its end wait for what outlives the calls (``AgentHost.aclose``). Cancelling shortens that wait.
        """
        try:
            await self._start(self.current)
            yield
        finally:
            for host in self._tasks.values():
                host.retire(now=True)
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def replace(self, agent: Agent) -> None:
        """Let another agent take new calls; the old one ends with its calls.

        Raises BrokenAgent if the lifespan of the new agent fails; the old one goes on then. Cancelling leaves
        the old one in place.
        """
        old = self.current
        host = AgentHost(agent, give_up=old.give_up)
        host.variants, host.llms = old.variants, old.llms
        await self._start(host)
        self.current = host
        old.retire()

    async def _start(self, host: AgentHost) -> None:
        """Run a host in a task of its own: a lifespan has to end in the task in which it began."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._run(host, ready), name="agent")
        self._tasks[task] = host
        task.add_done_callback(self._tasks.pop)
        await ready

    async def _run(self, host: AgentHost, ready: asyncio.Future[None]) -> None:
        try:
            async with host.running():
                ready.set_result(None)
                await host.serve()
                await host.aclose()
        except Exception as error:
            if ready.done():
                log.exception("the agent's lifespan failed at its end")
            else:
                ready.set_exception(error)
