"""The server inside the process of a test."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn
from support.serving import LINE, PATIENCE, SCRIPTED

from rejoinder.agent.config import load
from rejoinder.agent.server.server import Server as Program
from rejoinder.agent.server.serving import listen, web

LONG = f"scripted:llm|{LINE * 40}"


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.02)


@asynccontextmanager
async def served_here(
    change: Callable[[uvicorn.Config], None] = lambda config: None, **flags: object
) -> AsyncIterator[tuple[Program, int]]:
    """Serve in this process and loop, where tasks can be counted; yields the program and its port."""
    usual = {**SCRIPTED, "vad": "scripted:vad", "llm": LONG, "log_level": "error", "resume_s": 0.5}
    settings, _ = load({**usual, **flags})
    program = Program(settings, lambda name, seconds: None, lambda error: None)
    config = web(program)
    change(config)
    running = uvicorn.Server(config)
    sock = listen("127.0.0.1", 0)
    task = asyncio.create_task(running.serve(sockets=[sock]))
    await until(lambda: program.models is not None)
    yield program, sock.getsockname()[1]
    running.should_exit = True
    await task
