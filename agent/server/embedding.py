"""The server inside of an integrator's own program: an ASGI application to mount in Starlette or FastAPI."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.config import load
from rejoinder.agent.server.http.headers import SecurityHeaders
from rejoinder.agent.server.server import Server
from rejoinder.pipeline import Models

log = logging.getLogger(__name__)


@asynccontextmanager
async def serve(
    models: Models, agent: Agent[Any, Any] | None = None, **settings: Any
) -> AsyncIterator[Starlette]:
    """Answer calls for the length of the block; yields the application to mount.

    models: the loaded models, from ``open_models``. agent: the agent that answers, None for the settings'
    words only. settings: those of docs/reference/settings.md, such as ``max_sessions=4``; the environment and
    ``rejoinder.toml`` apply, too, but no setting that names a model or a port. The program around it decides
    which addresses it listens on.

    Its paths, such as ``/v1/realtime``, are below the path at which it is mounted. At the end of the block
    all calls end. Raises ConfigError. Cancelling ends the calls.
    """
    program = Server(
        load(settings)[0],
        lambda name, seconds: None,
        lambda error: log.error("the server failed: %s", error),
        agent=agent,
        models=models,
    )
    app = program.app()
    app.add_middleware(SecurityHeaders)  # a server of ours adds them to each of its own answers, too
    async with program.running():
        yield app
