"""Clients that attack a server, in a process of their own: slow heads, silent connections, many connects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe

from rejoinder.agent.bench.overhead.subject import END_COMMAND

HELD_CONNECTIONS = 500
"""Connections that are held open at a time."""
CONNECTS_AT_A_TIME = 100
"""Connections of the flood that are open at a time."""
DRIP_SECONDS = 1.0
"""Interval between two bytes of a slow head, in seconds."""
HANDSHAKE_ANSWER_SECONDS = 10.0
"""Longest wait for an answer, in seconds."""
RETRY_SECONDS = 0.1
"""Wait after a connection that could not be made, in seconds."""
STAY_SECONDS = 0.2
"""How long a client stays that does not wait for its answer: 100 of them connect 500 times a second."""
ATTACKER = "127.0.2.66"
"""The attackers' address, which is not that of the callers, or of a proxy."""
HEAD = (
    "GET /v1/realtime HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
"""A handshake."""


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send the head of a request byte by byte, until the server drops the connection (slow loris).

    Cancelling stops.
    """
    for byte in HEAD.encode()[:-4]:
        writer.write(bytes([byte]))
        with suppress(TimeoutError):
            async with asyncio.timeout(DRIP_SECONDS):
                if not await reader.read(1):
                    return


async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send nothing, until the server drops the connection. Cancelling stops."""
    await reader.read()


async def connect_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a handshake, read the beginning of the answer, and leave. Cancelling stops."""
    writer.write(HEAD.encode())
    async with asyncio.timeout(HANDSHAKE_ANSWER_SECONDS):
        await reader.read(2**12)


async def leave_soon(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a handshake, and leave without an answer. Cancelling stops."""
    writer.write(HEAD.encode())
    await asyncio.sleep(STAY_SECONDS)


ATTACKS: dict[str, tuple[Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], int]] = {
    "slow-loris": (drip, HELD_CONNECTIONS),
    "silent": (be_silent, HELD_CONNECTIONS),
    "flood": (connect_once, CONNECTS_AT_A_TIME),
    "hasty": (leave_soon, CONNECTS_AT_A_TIME),
}
"""The attacks: what one client does, and how many do it at a time. Each begins again when it is over."""


def attack(name: str, port: int, share: float, pipe: Pipe) -> None:
    """Attack until a command to end; send "" once all clients have connected, and the number of connections.

    share: of the clients in ``ATTACKS``.
    """
    asyncio.run(_attack(name, port, share, pipe))


async def _attack(name: str, port: int, share: float, pipe: Pipe) -> None:
    act, clients = ATTACKS[name]
    number, made = max(1, int(clients * share)), 0
    begun, ended = asyncio.Event(), asyncio.Event()

    async def again() -> None:
        nonlocal made
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ATTACKER, 0))
            except OSError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            made += 1
            if made >= number:
                begun.set()
            try:
                with suppress(OSError, TimeoutError):
                    await act(reader, writer)
            finally:
                writer.transport.abort()

    tasks = [asyncio.create_task(again()) for _ in range(number)]
    await begun.wait()
    pipe.send("")
    asyncio.get_running_loop().add_reader(pipe.fileno(), ended.set)
    await ended.wait()
    assert pipe.recv() == END_COMMAND
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    pipe.send(made)
