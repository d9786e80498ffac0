"""The server in an integrator's own program, under uvicorn as it comes."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from websockets.asyncio.client import connect as plain_connect
from websockets.exceptions import ConnectionClosed

import rejoinder
from rejoinder.agent.server.serving import listen
from rejoinder.client import AgentSaid, connect
from rejoinder.models.loading import Specs, open_models

SPECS = Specs("scripted:vad", "", "scripted:stt|hello", "scripted:llm|Sunny.", "scripted:tts")


async def own_page(request: Request) -> Response:
    return PlainTextResponse("the integrator's own page")


async def page(url: str) -> str:
    def fetch() -> str:
        with urllib.request.urlopen(url, timeout=20) as response:
            return str(response.read().decode())

    return await asyncio.to_thread(fetch)


async def policy(url: str) -> str:
    def fetch() -> str:
        with urllib.request.urlopen(url, timeout=20) as response:
            return str(response.headers["Content-Security-Policy"] or "")

    return await asyncio.to_thread(fetch)


@asynccontextmanager
async def program() -> AsyncIterator[str]:
    """Run a program of an integrator's with the server mounted at /voice; yields its address."""
    agent: rejoinder.Agent = rejoinder.Agent(greeting="Hello from the program.")
    async with open_models(SPECS) as models, rejoinder.mount(models, agent, max_sessions=1) as voice:
        app = Starlette(routes=[Route("/", own_page), Mount("/voice", voice)])
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        sock = listen("127.0.0.1", 0)
        task = asyncio.create_task(server.serve(sockets=[sock]))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        try:
            yield f"127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


def test_program_serves_its_own_pages_and_calls_below_its_path() -> None:
    async def hold() -> None:
        async with program() as address:
            assert await page(f"http://{address}/") == "the integrator's own page"
            assert json.loads(await page(f"http://{address}/voice/healthz"))["status"] == "ok"
            assert "<title>" in await page(f"http://{address}/voice/")
            assert "frame-ancestors 'none'" in await policy(f"http://{address}/voice/")
            assert await policy(f"http://{address}/") == "", "the integrator's pages are the integrator's"
            async with connect(f"ws://{address}/voice/v1/realtime") as call, asyncio.timeout(20):
                async for event in call:
                    if isinstance(event, AgentSaid):
                        assert event.text == "Hello from the program."
                        break

    asyncio.run(hold())


def test_lost_conversation_goes_on_below_a_path() -> None:
    async def hold() -> None:
        async with program() as address, asyncio.timeout(20):
            url = f"ws://{address}/voice/v1/realtime"
            async with plain_connect(url, proxy=None) as call:
                while (created := json.loads(await call.recv()))["type"] != "conversation.created":
                    pass
                conversation = created["conversation"]["id"]
                # There is one line only: a second call is refused, the same conversation is not.
                async with plain_connect(f"{url}?conversation_id={conversation}", proxy=None) as again:
                    assert json.loads(await again.recv())["type"] == "session.created"
                    while (event := json.loads(await again.recv()))["type"] != "conversation.created":
                        pass
                    assert event["conversation"]["id"] == conversation
                async with plain_connect(url, proxy=None) as other:
                    with pytest.raises(ConnectionClosed, match="all 1 lines are busy"):
                        await other.recv()

    asyncio.run(hold())
