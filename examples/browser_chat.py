"""A page that writes with an agent: it reads the answer as server-sent events, word by word.

    .venv/bin/python examples/browser_chat.py 8084      (then open http://127.0.0.1:8084)

The agent is in this program (examples/mount.py has the same for calls), so the page needs no key.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from hotel import agent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Route

from rejoinder import Specs, mount, open_models

PAGE = Path(__file__).with_suffix(".html")


async def page(request: Request) -> FileResponse:
    return FileResponse(PAGE)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with open_models(Specs()) as models, mount(models, agent) as voice:
        app.mount("/voice", voice)
        yield


app = Starlette(routes=[Route("/", page)], lifespan=lifespan)

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]))
