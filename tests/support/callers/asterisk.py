"""A call over Asterisk's AudioSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from support.serving import PATIENCE

from rejoinder.agent.wires.audiosocket.protocol import (
    packet,
)

UUID = packet(0x01, bytes(16))


class Asterisk:
    """The other end, in real time: sends 20 ms every 20 ms, and loses what comes ahead of its time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ear = bytearray()
        self.arrivals: list[float] = []
        self.hung_up = False
        self._mouth = bytearray()
        self._reader, self._writer = reader, writer

    @property
    def seconds_heard(self) -> float:
        return len(self.ear) / 16_000

    def say(self, pcm: bytes) -> None:
        self._mouth += pcm

    def loud(self, seconds: float) -> None:
        noise = np.random.default_rng(0).normal(0.0, 6000.0, int(8000 * seconds))
        self.say(noise.astype("<i2").tobytes())

    def digit(self, key: str) -> None:
        self._writer.write(packet(0x03, key.encode()))

    async def speak(self) -> None:
        loop = asyncio.get_running_loop()
        began, ticks = loop.time(), 0
        while True:
            ticks += 1
            await asyncio.sleep(max(0.0, began + 0.02 * ticks - loop.time()))
            self._writer.write(packet(0x10, bytes(self._mouth[:320]).ljust(320, b"\x00")))
            del self._mouth[:320]

    async def listen(self) -> None:
        while True:
            head = await self._reader.readexactly(3)
            payload = await self._reader.readexactly(int.from_bytes(head[1:], "big"))
            if head[0] == 0x00:
                self.hung_up = True
                return
            assert head[0] == 0x10 and len(payload) == 320
            self.ear += payload
            self.arrivals.append(asyncio.get_running_loop().time())

    async def until(self, true: Any) -> None:
        async with asyncio.timeout(PATIENCE):
            while not true():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.02)


@asynccontextmanager
async def calling(port: int) -> AsyncIterator[Asterisk]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(UUID)
    caller = Asterisk(reader, writer)
    tasks = [asyncio.create_task(caller.speak()), asyncio.create_task(caller.listen())]
    try:
        yield caller
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        writer.close()
