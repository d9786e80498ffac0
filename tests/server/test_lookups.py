"""Lookups of names that hang hold up nothing else."""

from __future__ import annotations

import asyncio
import threading

import uvicorn

from rejoinder.agent.server.serving import listen
from rejoinder.agent.server.uvicorn_server import Uvicorn


async def nothing() -> None:
    """Drain nothing."""


def test_threads_remain_while_all_calls_wait_for_a_resolver() -> None:
    async def run() -> None:
        server = Uvicorn(uvicorn.Config(lambda: None, lifespan="off"), lambda: None, nothing)
        sock = listen("127.0.0.1", 0)
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        async with asyncio.timeout(20.0):
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
        answered = threading.Event()
        loop = asyncio.get_running_loop()
        lookups = [loop.run_in_executor(None, answered.wait) for _ in range(40)]
        try:
            async with asyncio.timeout(20.0):
                assert await asyncio.to_thread(lambda: 1) == 1
            assert not any(lookup.done() for lookup in lookups)
        finally:
            answered.set()
            await asyncio.gather(*lookups)
            server.should_exit = True
            await serving

    asyncio.run(run())
