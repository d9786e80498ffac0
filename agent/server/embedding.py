"""The server inside of an integrator's own program: an ASGI application to mount in Starlette or FastAPI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.config import load
from rejoinder.agent.server.http.headers import SecurityHeaders
from rejoinder.agent.server.server import Server
from rejoinder.pipeline import Models


@asynccontextmanager
async def mount(models: Models, agent: Agent | None = None, **settings: Any) -> AsyncIterator[Starlette]:
    """Answer calls for the length of the block; yields the application to mount at a path.

    models: loaded ones, from ``open_models``. agent: the one that answers, None for the settings' words only.
    settings: those of docs/reference/settings.md, such as ``max_sessions=4``; the environment and
    ``rejoinder.toml`` apply, too, except for those that name a model, a port or an address.

    Its paths, such as ``/v1/realtime``, are below the path at which it is mounted. At the end of the block
    all calls end. Raises ConfigError, also for models that do not fit the agent, and BrokenAgent if its
    lifespan fails. Cancelling ends the calls.
    """
    loaded, _ = load({**settings, "audiosocket_port": 0, "wyoming_port": 0})
    errors: list[Exception] = []
    program = Server(loaded, lambda name, seconds: None, errors.append, agent=agent, models=models)
    app = program.app()
    app.add_middleware(SecurityHeaders)  # a server of ours adds them to each of its own answers, too
    async with program.running():
        if errors:
            raise errors[0]
        yield app
