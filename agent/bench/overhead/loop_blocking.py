"""Measures how long one message blocks the event loop, for each of the most expensive messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe

import numpy as np
from rich.table import Table
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from rejoinder.agent.bench.cases.worst_messages import CHAT, PCM, PHONE, REALTIME, WORST, WYOMING, Worst
from rejoinder.agent.bench.overhead.calls import received, subject
from rejoinder.agent.bench.overhead.subject import (
    END_COMMAND,
    START_COMMAND,
    STOP_COMMAND,
    Spent,
    serve_watched,
)
from rejoinder.agent.server.own_server import held_port

REPEATS = 3
"""Number of times that each message is sent."""
SOCKET_CLOSE_SECONDS = 1.0
"""Longest wait for a socket to close."""
LIMIT = 2**20
"""Most bytes in one line of the server's answer."""
BEGUN = {"streamSid": "MZ1", "callSid": "CA1", "mediaFormat": {"encoding": "audio/x-mulaw"}}
"""Twilio's description of a stream that begins."""
PRECEDING_MESSAGES = {PHONE: json.dumps({"event": "start", "start": BEGUN})}
"""The message that has to precede the measured one, by protocol."""
FOLLOWING_MESSAGES = {
    REALTIME: '{"type":"conversation.item.delete","item_id":"none","event_id":"behind"}',
    PCM: '{"type":"behind"}',
    PHONE: '{"event":"stop"}',
}
"""The message that follows the measured one, by protocol. The server answers it when it is done with both."""
FOLLOWING_ANSWERS = {REALTIME: '"event_id": "behind"', PCM: "'behind'"}
"""Text in the answer to that message, by protocol. A telephone call ends instead."""


@dataclass(frozen=True, slots=True)
class MessageCost:
    """The cost of a message: lags of the event loop in ms, and the peak memory of the process in MiB.

    busy_ms: longest CPU time of the loop's thread between two measurements. Unlike the lags, it excludes the
    other load of the machine.
    """

    wire: str
    message: str
    p50_ms: float
    p99_ms: float
    longest_ms: float
    busy_ms: float
    peak_mib: int


def message_cost(worst: Worst, spent: Spent) -> MessageCost:
    """Return the cost of a message from the server's measurements."""
    p50, p99 = (1000.0 * np.percentile(spent.lags, (50, 99))).tolist()
    longest, busy = 1000.0 * max(spent.lags), 1000.0 * max(spent.busy)
    return MessageCost(worst.wire, worst.name, p50, p99, longest, busy, spent.peak // 2**20)


async def measure(
    vad: str, tell: Callable[[MessageCost], None], worst: Sequence[Worst] = WORST
) -> list[MessageCost]:
    """Send each message to its own server, and return the costs. Raises PipelineError.

    Cancelling ends the server.
    """
    costs = []
    for one in worst:
        with held_port() as wyoming_port:
            async with subject(serve_watched, vad, wyoming_port, {}) as pipe:
                port = await asyncio.to_thread(pipe.recv)
                try:
                    costs.append(message_cost(one, await _sent(one, port, wyoming_port, pipe)))
                finally:
                    pipe.send(END_COMMAND)
        tell(costs[-1])
    return costs


async def _sent(worst: Worst, port: int, wyoming_port: int, pipe: Pipe) -> Spent:
    made = worst.made()
    pipe.send(START_COMMAND)
    for _ in range(REPEATS):
        if worst.wire == CHAT:
            await _post(port, made)
        elif worst.wire == WYOMING:
            await _request(wyoming_port, made)
        else:
            await _call(worst, f"ws://127.0.0.1:{port}/v1/{worst.wire}", made)
    pipe.send(STOP_COMMAND)
    return await received(pipe)


async def _call(worst: Worst, url: str, made: str | bytes) -> None:
    async with connect(url, compression=None, max_size=None, proxy=None, ping_interval=None) as socket:
        with suppress(ConnectionClosed):  # some messages end the call
            answered = asyncio.create_task(_answered(socket, FOLLOWING_ANSWERS.get(worst.wire, "none")))
            if worst.wire in PRECEDING_MESSAGES:
                await socket.send(PRECEDING_MESSAGES[worst.wire])
            if worst.raw:
                assert isinstance(made, bytes)
                socket.transport.write(made)
            else:
                await socket.send(made)
            await socket.send(FOLLOWING_MESSAGES[worst.wire])
            await answered


async def _answered(socket: ClientConnection, wanted: str) -> None:
    async for message in socket:
        if wanted in str(message):
            return


async def _post(port: int, made: str | bytes) -> None:
    body = made.encode() if isinstance(made, str) else made
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    await _exchange(port, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


async def _request(port: int, made: str | bytes) -> None:
    assert isinstance(made, bytes)
    await _exchange(port, made + b'{"type":"ping"}\n')


async def _exchange(port: int, sent: bytes) -> None:
    """Send bytes, and read the first line of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=LIMIT)
    writer.write(sent)
    with suppress(ConnectionError):
        await reader.readline()
    writer.close()
    with suppress(ConnectionError, TimeoutError):
        await asyncio.wait_for(writer.wait_closed(), SOCKET_CLOSE_SECONDS)


def table(costs: Sequence[MessageCost]) -> Table:
    """Return the table for the terminal."""
    shown = Table(
        title="How long each message blocks the loop", title_justify="left", title_style="bold", box=None
    )
    for column in ("", "message", "p50 ms", "p99 ms", "longest ms", "busy ms", "peak MiB"):
        shown.add_column(column, justify="right" if column.endswith(("ms", "MiB")) else "left", no_wrap=True)
    for one in costs:
        figures = (f"{value:.1f}" for value in (one.p50_ms, one.p99_ms, one.longest_ms, one.busy_ms))
        shown.add_row(one.wire, one.message, *figures, str(one.peak_mib))
    return shown
