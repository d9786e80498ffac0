"""A proxy on loopback that is a bad network: a delay, jitter, and lost packets as TCP shows them.

A kernel with netem does this to packets. Above TCP nothing is lost: what follows a lost packet waits until
that packet has been sent again. So this proxy delays pieces of the size of a packet, and keeps their order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

PACKET = 1448
"""Bytes of data in one packet of an Ethernet."""
WINDOW = 64
"""Most packets on their way in one direction: then the sender waits, as it does for TCP's window."""


@asynccontextmanager
async def bad_network(
    port: int, delay: float = 0.15, jitter: float = 0.03, loss: float = 0.05, seed: int = 0
) -> AsyncIterator[int]:
    """Pass connections on to a loopback port for the length of the block, and yield the port to connect to.

    delay, jitter: seconds in each direction. loss: share of the packets. One that is lost comes a round trip
    later (RFC 5681, fast retransmit); each further loss of it doubles that wait (RFC 6298, 5.5). Cancelling
    ends the connections.
    """
    dice = random.Random(seed)
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        pending: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(WINDOW)

        async def deliver() -> None:
            while True:
                due, data = await pending.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                writer.write(data)
                await writer.drain()
                if not data:
                    return

        async with asyncio.TaskGroup() as both:
            both.create_task(deliver())
            arrives = 0.0
            while data := await reader.read(PACKET):
                wait, again = delay + dice.uniform(-jitter, jitter), 2 * delay
                while dice.random() < loss:
                    wait, again = wait + again, 2 * again
                arrives = max(arrives, loop.time() + wait)
                await pending.put((arrives, data))
            await pending.put((arrives, b""))
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        for way in (pump(reader, back), pump(there, writer)):
            task = asyncio.create_task(way)
            tasks.add(task)

    async with await asyncio.start_server(connect, "127.0.0.1", 0) as server:
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError, OSError, ExceptionGroup):
                    await task
