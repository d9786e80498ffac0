"""Measures the framework's own cost: CPU time per 20 ms frame and session, with scripted models.

There are two ways: a ``Session`` inside a process, and the real server with calls over loopback. The subject
runs in a separate process. All of its threads count; the callers' CPU time does not.
"""

from __future__ import annotations

import asyncio
import base64
import json
import multiprocessing
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any

import numpy as np
from rich.table import Table
from websockets.asyncio.client import ClientConnection, connect
from websockets.frames import Frame, Opcode

from rejoinder.agent.bench.overhead_subject import (
    END_COMMAND,
    FRAME_SECONDS,
    START_COMMAND,
    STOP_COMMAND,
    Spent,
    Workload,
    hold_sessions,
    serve_watched,
    sounds,
)
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.pipeline.errors import PipelineError

SESSION = "Session"
"""Way of the audio: into sessions in one process."""
WEBSOCKET = "WebSocket"
"""Way of the audio: over WebSockets into one server process."""
WARM_UP_SECONDS = 1.5
"""Time before the measurement, in seconds."""
SPEAKING = 10
"""One of this number of sessions speaks, at least one, in a run with speech."""
SUBJECT_END_SECONDS = 10.0
"""Longest wait for the subject to end."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """The cost of one load: CPU microseconds per frame and session, total cores, and lags of the loop in ms.

    answers: number of replies during the measurement.
    """

    way: str
    sessions: int
    speaking: int
    microseconds: float
    cores: float
    lag_p50_ms: float
    lag_p99_ms: float
    answers: int


def speakers(sessions: int, some: bool, one_in: int = SPEAKING) -> int:
    """Return the number of sessions that speak. one_in: sessions for each that speaks."""
    return max(1, sessions // one_in) if some else 0


def level(way: str, load: Workload, spent: Spent) -> Overhead:
    """Return the figures of a load from the subject's measurements."""
    cores = spent.processor / spent.seconds
    p50, p99 = (1000.0 * np.percentile(spent.lags, (50, 99))).tolist()
    each = cores * FRAME_SECONDS / load.sessions * 1e6
    return Overhead(way, load.sessions, load.speaking, each, cores, p50, p99, spent.answers)


async def measure(
    ways: Sequence[str],
    sessions: Sequence[int],
    seconds: float,
    vad: str,
    tell: Callable[[Overhead], None],
    settings: Mapping[str, object],
    one_in: int = SPEAKING,
) -> list[Overhead]:
    """Measure each way with each number of sessions, silent and speaking. Raises PipelineError.

    settings: of the server. one_in: as in ``speakers``. Cancelling ends the subject's process.
    """
    levels = []
    for way in ways:
        for count in sessions:
            for some in (False, True):
                load = Workload(count, speakers(count, some, one_in), WARM_UP_SECONDS, seconds)
                spent = await (
                    _in_process(load, vad) if way == SESSION else _over_sockets(load, vad, settings)
                )
                levels.append(level(way, load, spent))
                tell(levels[-1])
    return levels


async def _in_process(load: Workload, vad: str) -> Spent:
    async with subject(hold_sessions, load, vad) as pipe:
        return await received(pipe)


async def _over_sockets(load: Workload, vad: str, settings: Mapping[str, object]) -> Spent:
    async with subject(serve_watched, vad, 0, settings) as pipe:
        port = await asyncio.to_thread(pipe.recv)
        try:
            return await _call(f"ws://127.0.0.1:{port}/v1/realtime", load, pipe)
        finally:
            pipe.send(END_COMMAND)


async def _call(url: str, load: Workload, pipe: Pipe) -> Spent:
    """Open one call per session. The frames are built in advance, so that sending them costs little."""
    answers, frames = 0, [append(pcm) for pcm in sounds(CLIENT_RATE)]

    async def listen(socket: ClientConnection) -> None:
        nonlocal answers
        async for message in socket:
            answers += '"response.done"' in str(message)

    async with AsyncExitStack() as stack:
        calls = [
            await stack.enter_async_context(connect(url, compression=None, max_size=None, proxy=None))
            for _ in range(load.sessions)
        ]
        listening = [asyncio.create_task(listen(call)) for call in calls]

        async def send(session: int, frame: int) -> None:
            nonlocal answers
            if (session, frame) == (0, load.warm_frames):
                pipe.send(START_COMMAND)
                answers = 0
            calls[session].transport.write(frames[load.talks(session, frame)])

        await load.feed(send)
        pipe.send(STOP_COMMAND)
        spent = await received(pipe)
        spent.answers = answers
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


def table(levels: Sequence[Overhead]) -> Table:
    """Return the table for the terminal."""
    shown = Table(title="Cost of the framework alone", title_justify="left", title_style="bold", box=None)
    columns = ("", "sessions", "speaking", "us/frame", "cores", "lag p50 ms", "lag p99 ms", "answers")
    for column in columns:
        shown.add_column(column, justify="right" if column else "left", no_wrap=True)
    for one in levels:
        figures = (f"{one.microseconds:.0f}", f"{one.cores:.2f}", f"{one.lag_p50_ms:.1f}")
        counts = (str(one.sessions), str(one.speaking))
        shown.add_row(one.way, *counts, *figures, f"{one.lag_p99_ms:.1f}", str(one.answers))
    return shown
