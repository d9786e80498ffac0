"""A program with pages of its own, and an agent's calls below /voice.

.venv/bin/python examples/mount.py 8083
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from rejoinder import Agent, Specs, mount, open_models

agent = Agent("You answer for Mario's.", greeting="Mario's, how can I help?")


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with open_models(Specs()) as models, mount(models, agent, max_sessions=4) as voice:
        app.mount("/voice", voice)
        yield


async def home(request: Request) -> Response:
    return PlainTextResponse("Mario's own page. Talk to the agent at /voice/.\n")


app = Starlette(routes=[Route("/", home)], lifespan=lifespan)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]))
