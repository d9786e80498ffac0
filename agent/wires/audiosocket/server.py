"""Asterisk's AudioSocket over TCP: a port of its own, and a clock that sends a packet every 20 ms."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.websockets import WebSocketState

from rejoinder.agent.config import ConfigError
from rejoinder.agent.wires.audiosocket.protocol import (
    HANG_UP,
    TICK_SECONDS,
    AudioSocket,
    Packets,
    Queue,
    identifier,
    misbegun,
    packet,
    started,
)
from rejoinder.agent.wires.call_log import Address, refused
from rejoinder.agent.wires.socket import BEHIND
from rejoinder.pipeline import Channel, Closed, ProtocolError

log = logging.getLogger(__name__)

READ = 4096
HEAD = 3
"""Bytes before a packet's payload: its kind and its length."""
START_SECONDS = 10.0
"""So long a connection may take to send its first audio."""
SEND_SECONDS = 5.0
"""An Asterisk that takes nothing for so long is hung up on."""
LINGER_SECONDS = 1.0
"""So long Asterisk may take to close, too: closing with unread bytes resets, and the last packet is lost."""


class Line:
    """One TCP connection with the methods of a WebSocket that a call needs."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.application_state = WebSocketState.CONNECTED
        self.client: Address = writer.get_extra_info("peername")
        self._reader = reader
        self._writer = writer
        self._packets = Packets()
        self._came: Channel[str | bytes] = Channel(64, "audiosocket")
        self._queue = Queue()
        self._wrong = ""

    async def run(self) -> None:
        """Read packets, and send those that are due, until the connection ends."""
        try:
            async with asyncio.TaskGroup() as tasks:
                pacing = tasks.create_task(self._pace())
                await self._read()
                pacing.cancel()
        except* (OSError, TimeoutError) as errors:
            log.debug("AudioSocket: %s", errors.exceptions[0])
        finally:
            self.application_state = WebSocketState.DISCONNECTED
            self._came.close()

    async def _read(self) -> None:
        head = b""
        while data := await self._reader.read(READ):
            if len(head) < HEAD:
                head = (head + data)[:HEAD]
                self._wrong = misbegun(head)
            if self._wrong:  # whatever follows is read and dropped, so that the hang-up arrives
                self._came.close()
                continue
            for whole in self._packets.feed(data):
                if self.application_state is WebSocketState.CONNECTED:
                    await self._came.send(whole)

    async def _pace(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            whole, marks = self._queue.next()
            for mark in marks:
                await self._came.send(mark)
            if whole is not None:
                self._writer.write(whole)
                async with asyncio.timeout(SEND_SECONDS):
                    await self._writer.drain()
            # A late tick is not made up for: Asterisk would lose what comes ahead of its time.
            due = max(due + TICK_SECONDS, loop.time())
            await asyncio.sleep(due - loop.time())

    async def start(self) -> AudioSocket:
        """Wait until Asterisk has told the rate, by its first audio. Raises ProtocolError."""
        id_ = ""
        try:
            async with asyncio.timeout(START_SECONDS):
                while True:
                    whole = await self._came.receive()
                    if isinstance(whole, str):
                        continue
                    id_ = identifier(whole) or id_
                    if carrier := started(whole):
                        carrier.id = id_
                        return carrier
        except TimeoutError:
            raise ProtocolError(f"no audio within {START_SECONDS:g} s") from None
        except Closed:
            raise ProtocolError(self._wrong or "it was closed before its start") from None

    async def receive(self) -> dict[str, Any]:
        """Return the next packet, or a mark that has been played."""
        try:
            frame = await self._came.receive()
        except Closed:
            return {"type": "websocket.disconnect"}
        return {**_message(frame), BEHIND: self._behind}

    def _behind(self) -> list[dict[str, Any]]:
        return [_message(frame) for frame in self._came.receive_nowait(self._came.size)]

    async def send_text(self, data: str) -> None:
        """Take a word for the queue."""
        self._queue.take(data)

    async def send_bytes(self, data: bytes) -> None:
        """Queue a packet. Raises Overloaded."""
        self._queue.take(data)

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        """Hang up."""
        self.application_state = WebSocketState.DISCONNECTED
        with suppress(OSError):
            self._writer.write(packet(HANG_UP))
            self._writer.write_eof()


def _message(frame: str | bytes) -> dict[str, Any]:
    return {"type": "websocket.receive", "text" if isinstance(frame, str) else "bytes": frame}


@asynccontextmanager
async def listening(
    host: str, port: int, serve: Callable[[Line], Awaitable[None]], failed: Callable[[Exception], None]
) -> AsyncIterator[None]:
    """Serve AudioSocket for the length of the block, and end its calls; no port, no service.

    failed: is told where the port cannot be listened on.
    """
    if not port:
        yield
        return
    tasks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer)
        running = asyncio.create_task(line.run(), name="audiosocket")
        try:
            await serve(line)
        except ProtocolError as error:
            refused("AudioSocket", line.client, str(error))
            await line.close(reason=str(error))
        finally:
            await asyncio.wait([running], timeout=LINGER_SECONDS)
            running.cancel()
            await asyncio.wait([running])
            writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of ours: asyncio's own reports it as an error when it is cancelled.
        task = asyncio.create_task(talk(reader, writer), name="audiosocket-call")
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    try:
        server = await asyncio.start_server(connected, host, port)
    except OSError as error:
        failed(ConfigError(f"audiosocket_port {port}: {error.strerror}"))
        yield
        return
    try:
        yield
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
