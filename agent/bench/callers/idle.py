"""Idle callers, which send silence, in a separate process from the callers that speak."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException
from websockets.protocol import State

from rejoinder.agent.bench.overhead.calls import append, subject
from rejoinder.agent.bench.overhead.subject import TICK_SECONDS, Workload, sounds
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.client.socket import CallLost

HOUR = 3600.0
"""Longest call, in seconds: the callers hang up earlier."""


@dataclass(slots=True)
class Idle:
    """The idle callers. cores: average cores that their process used, set after they hang up."""

    cores: float = 0.0


@asynccontextmanager
async def idle_callers(url: str, key: str | None, number: int) -> AsyncIterator[Idle]:
    """Hold ``number`` idle calls while the block runs. Raises CallLost if one cannot begin or is lost.

    Cancelling the block hangs up.
    """
    idle = Idle()
    if not number:
        yield idle
        return
    async with subject(call_and_be_silent, url, key, number) as pipe:
        if reason := await asyncio.to_thread(pipe.recv):
            raise CallLost(reason)
        try:
            yield idle
        finally:
            pipe.send("end")
        kept, idle.cores = await asyncio.to_thread(pipe.recv)
        if kept < number:
            raise CallLost(f"only {kept} of {number} idle callers were kept on the line (max_sessions?)")


def call_and_be_silent(url: str, key: str | None, number: int, pipe: Pipe) -> None:
    """Open N idle calls; report the error or "", then which calls survived and the CPU they used."""
    try:
        asyncio.run(_be_silent(url, key, number, pipe))
    except (OSError, WebSocketException) as error:
        pipe.send(f"an idle caller cannot call {url}: {error}")


async def _be_silent(url: str, key: str | None, number: int, pipe: Pipe) -> None:
    quiet, headers = append(sounds(CLIENT_RATE)[0]), {"Authorization": f"Bearer {key}"} if key else {}
    async with AsyncExitStack() as stack:
        calls: list[ClientConnection] = []
        for _ in range(number):
            calling = connect(url, additional_headers=headers, compression=None, max_size=None, proxy=None)
            calls.append(await stack.enter_async_context(calling))
        pipe.send("")

        async def send(session: int, frame: int) -> None:
            calls[session].transport.write(quiet)

        spent, began = time.process_time(), time.perf_counter()
        feeding = asyncio.create_task(Workload(number, 0, 0.0, HOUR).feed(send, TICK_SECONDS))
        asyncio.get_running_loop().add_reader(pipe.fileno(), feeding.cancel)
        await asyncio.wait([feeding])
        cores = (time.process_time() - spent) / (time.perf_counter() - began)
        pipe.send((sum(call.state is State.OPEN for call in calls), cores))
