"""Loads an agent anew whenever its files change, while its calls go on: for ``rejoinder serve --reload``."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.functions.places import said_of
from rejoinder.agent.app.hosting import Hosting
from rejoinder.agent.app.loading import folder_of, load_agent
from rejoinder.models.hints import needing
from rejoinder.pipeline import PipelineError

log = logging.getLogger(__name__)


async def follow(named: str, hosting: Hosting, prepare: Callable[[Agent], Awaitable[None]]) -> None:
    """Load the agent anew after each change of a Python file in its folder, until cancelled.

    named: as for ``load_agent``. prepare: is awaited before calls get a new agent, and raises ConfigError for
    one that cannot take them. A mistake in the file is logged, and the old agent goes on. Raises
    NotInstalled.
    """
    with needing("reload", "rejoinder serve --reload"):
        from watchfiles import PythonFilter, awatch

    log.info("the agent is loaded anew when a file in %s changes", folder_of(named))
    async for _ in awatch(folder_of(named), watch_filter=PythonFilter()):
        try:
            agent = load_agent(named, again=True)
            await prepare(agent)
            await hosting.replace(agent)
        except Exception as error:  # the integrator's own code: any error
            reason = error if isinstance(error, PipelineError) else said_of(error)
            log.error("the agent was not loaded anew: %s", reason)
        else:
            log.info("the agent was loaded anew: the next call gets it")
