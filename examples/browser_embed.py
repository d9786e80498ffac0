"""Embed the agent in your own web page: this is its backend, browser_embed.html is the page.

    REJOINDER_KEY=rj_... python examples/browser_embed.py http://127.0.0.1:8080 8082

The page has another origin than the agent. It has no key, only a secret that this backend requests and that
opens calls for some minutes. Configure ``rejoinder serve`` for both: ``api_keys`` contains the key's hash,
and ``allowed_origins`` is "http://127.0.0.1:8082".
"""

import os
import sys
from pathlib import Path

import uvicorn
from openai import AsyncOpenAI, OpenAIError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import rejoinder.agent.server

PAGE = Path(__file__).with_suffix(".html")
SCRIPTS = Path(rejoinder.agent.server.__file__).parent / "page"
"""Rejoinder's page: its microphone and loudspeaker are modules that other pages can use."""


def backend(server: str, key: str) -> Starlette:
    async def page(request: Request) -> FileResponse:
        return FileResponse(PAGE)

    async def secret(request: Request) -> JSONResponse:
        # Your backend knows the visitor: put what the agent should know into the session.
        session = {"type": "realtime", "instructions": "You help visitors of a bicycle shop. Be brief."}
        try:
            async with AsyncOpenAI(base_url=f"{server}/v1", api_key=key) as agent:
                made = await agent.realtime.client_secrets.create(session=session)
        except OpenAIError as error:  # the server does not run, or rejects the key
            print(f"{server} gives no secret: {error}", file=sys.stderr)
            return JSONResponse({"error": "the agent is not there"}, 502)
        url = f"{server}/v1/realtime?hold=true".replace("http", "ws", 1)
        return JSONResponse({"url": url, "secret": made.value})

    routes = [
        Route("/", page),
        Route("/secret", secret, methods=["POST"]),
        Mount("/rejoinder", StaticFiles(directory=SCRIPTS)),
    ]
    return Starlette(routes=routes)


if __name__ == "__main__":
    if len(sys.argv) != 3 or "REJOINDER_KEY" not in os.environ:
        sys.exit(__doc__)
    app = backend(sys.argv[1].rstrip("/"), os.environ["REJOINDER_KEY"])
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]))
