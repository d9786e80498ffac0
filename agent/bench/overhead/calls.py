"""Calls over WebSockets into servers of the bench, each server in a process of its own."""

from __future__ import annotations

import asyncio
import base64
import json
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from multiprocessing.connection import Connection as Pipe
from multiprocessing.synchronize import Barrier
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.frames import Frame, Opcode

from rejoinder.agent.bench.overhead.subject import (
    END_COMMAND,
    START_COMMAND,
    STOP_COMMAND,
    TICK_SECONDS,
    Spent,
    Workload,
    serve_watched,
    sounds,
)
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.server.descriptors import allow_sockets
from rejoinder.pipeline.errors import PipelineError

SUBJECT_END_SECONDS = 10.0
"""Longest wait for the subject to end."""
CONNECT_SECONDS = 60.0
"""Longest wait until the calls of all processes are connected."""


async def into_one(load: Workload, vad: str, settings: Mapping[str, object]) -> Spent:
    """Send all calls of a load from this process into one server. Raises PipelineError.

    Cancelling ends the server's process.
    """
    return await _into_server(load, vad, settings, None)


async def into_several(shares: list[Workload], vad: str, settings: Mapping[str, object]) -> Spent:
    """Send each share into a server of its own, all at the same time. Raises PipelineError.

    Each server has a process, and so have its callers. They begin when all calls are connected. The lags of
    all loops are in one list. Cancelling ends all processes.
    """
    connected = multiprocessing.get_context("spawn").Barrier(len(shares))
    async with AsyncExitStack() as stack:
        pipes = [
            await stack.enter_async_context(subject(_call_server, share, vad, settings, connected))
            for share in shares
        ]
        return joined([await received(pipe) for pipe in pipes])


def joined(parts: list[Spent]) -> Spent:
    """Return the cost of several processes in the same period, as one."""
    return Spent(
        processor=sum(part.processor for part in parts),
        seconds=max(part.seconds for part in parts),
        lags=[lag for part in parts for lag in part.lags],
        busy=[busy for part in parts for busy in part.busy],
        answers=sum(part.answers for part in parts),
        peak=max(part.peak for part in parts),
        callers=sum(part.callers for part in parts),
    )


def _call_server(
    load: Workload, vad: str, settings: Mapping[str, object], connected: Barrier, pipe: Pipe
) -> None:
    """Call a server from a process of its own, and send its cost over the pipe."""
    pipe.send(asyncio.run(_into_server(load, vad, settings, connected)))


async def _into_server(
    load: Workload, vad: str, settings: Mapping[str, object], connected: Barrier | None
) -> Spent:
    async with subject(serve_watched, vad, 0, settings) as pipe:
        port = await asyncio.to_thread(pipe.recv)
        try:
            return await _call(f"ws://127.0.0.1:{port}/v1/realtime", load, pipe, connected)
        finally:
            pipe.send(END_COMMAND)


async def _call(url: str, load: Workload, pipe: Pipe, connected: Barrier | None) -> Spent:
    """Open one call per session. The frames are built in advance, so that sending them costs little.

    connected: awaited before the first frame. Such callers share the processors with more servers, so frames
    that are due within ``TICK_SECONDS`` are sent together.
    """
    answers, began, frames = 0, 0.0, [append(pcm) for pcm in sounds(CLIENT_RATE)]

    async def listen(socket: ClientConnection) -> None:
        nonlocal answers
        async for message in socket:
            answers += '"response.done"' in str(message)

    allow_sockets()
    async with AsyncExitStack() as stack:
        calls = [
            await stack.enter_async_context(connect(url, compression=None, max_size=None, proxy=None))
            for _ in range(load.sessions)
        ]
        listening = [asyncio.create_task(listen(call)) for call in calls]
        if connected:
            await asyncio.to_thread(connected.wait, CONNECT_SECONDS)

        async def send(session: int, frame: int) -> None:
            nonlocal answers, began
            if (session, frame) == (0, load.warm_frames):
                pipe.send(START_COMMAND)
                answers, began = 0, time.process_time()
            calls[session].transport.write(frames[load.talks(session, frame)])

        await load.feed(send, TICK_SECONDS if connected else 0.0)
        pipe.send(STOP_COMMAND)
        used = time.process_time() - began
        spent = await received(pipe)
        spent.answers, spent.callers = answers, used
        for task in listening:
            task.cancel()
        return spent


def append(pcm: bytes) -> bytes:
    """Return a client's WebSocket frame with this audio."""
    event = {"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm).decode()}
    return Frame(Opcode.TEXT, json.dumps(event).encode()).serialize(mask=True)


@asynccontextmanager
async def subject(target: Callable[..., None], *arguments: Any) -> AsyncIterator[Pipe]:
    """Run a function in a new process while the block runs, and yield the pipe to it.

    Cancelling ends the process. Raises PipelineError if the process ends by itself.
    """
    fresh = multiprocessing.get_context("spawn")
    ours, theirs = fresh.Pipe()
    process = fresh.Process(target=target, args=(*arguments, theirs))
    process.start()
    theirs.close()
    try:
        yield ours
    except (EOFError, OSError) as error:
        raise PipelineError(f"the measured process has ended: {error or target.__name__}") from error
    finally:
        await asyncio.to_thread(process.join, SUBJECT_END_SECONDS)
        process.kill()
        process.join()
        ours.close()


async def received(pipe: Pipe) -> Spent:
    """Return the measurements that the subject sends. Cancelling leaves a thread waiting for them."""
    spent: Spent = await asyncio.to_thread(pipe.recv)
    return spent
