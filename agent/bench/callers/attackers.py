"""Clients that attack a server, in a process of their own: slow heads, silent connections, many connects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe

from rejoinder.agent.bench.overhead_subject import END_COMMAND

HELD_CONNECTIONS = 500
"""Connections that are held open at a time."""
CONNECTS_AT_A_TIME = 100
"""Connections of the flood that are open at a time."""
DRIP_SECONDS = 1.0
"""Interval between two bytes of a slow head, in seconds."""
HANDSHAKE_ANSWER_SECONDS = 10.0
"""Longest wait for an answer, in seconds."""
ATTACKER = "198.51.100.66"
"""The attackers' address, as a proxy would name it."""
HEAD = (
    "GET /v1/realtime HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    f"X-Forwarded-For: {ATTACKER}\r\n\r\n"
)
"""A handshake. The header stands for a proxy, which names each client's address."""


async def drip(port: int) -> None:
    """Send the head of a request byte by byte, until the server drops the connection (slow loris).

    Cancelling ends the connection.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for byte in HEAD.encode()[:-4]:
            writer.write(bytes([byte]))
            with suppress(TimeoutError):
                async with asyncio.timeout(DRIP_SECONDS):
                    if not await reader.read(1):
                        return
    finally:
        writer.transport.abort()


async def be_silent(port: int) -> None:
    """Send nothing, until the server drops the connection. Cancelling ends it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await reader.read()
    finally:
        writer.transport.abort()


async def connect_once(port: int) -> None:
    """Send a handshake, read the beginning of the answer, and leave. Cancelling leaves at once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(HEAD.encode())
        async with asyncio.timeout(HANDSHAKE_ANSWER_SECONDS):
            await reader.read(2**12)
    finally:
        writer.transport.abort()


ATTACKS: dict[str, tuple[Callable[[int], Awaitable[None]], int]] = {
    "slow-loris": (drip, HELD_CONNECTIONS),
    "silent": (be_silent, HELD_CONNECTIONS),
    "flood": (connect_once, CONNECTS_AT_A_TIME),
}
"""The attacks: what one client does, and how many do it at a time. Each begins again when it is over."""


def attack(name: str, port: int, share: float, pipe: Pipe) -> None:
    """Attack until told to end; send "" at the beginning, and the number of connections at the end.

    share: of the clients in ``ATTACKS``.
    """
    asyncio.run(_attack(name, port, share, pipe))


async def _attack(name: str, port: int, share: float, pipe: Pipe) -> None:
    act, clients = ATTACKS[name]
    made = 0

    async def again() -> None:
        nonlocal made
        while True:
            made += 1
            with suppress(OSError, TimeoutError):
                await act(port)

    tasks = [asyncio.create_task(again()) for _ in range(max(1, int(clients * share)))]
    pipe.send("")
    told = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), told.set)
    await told.wait()
    assert pipe.recv() == END_COMMAND
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    pipe.send(made)
