"""Asterisk's AudioSocket over TCP: its own port, and a clock that sends a packet every 20 ms."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from websockets.frames import CloseCode

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
from rejoinder.agent.wires.call_log import Address, log_refused
from rejoinder.agent.wires.transport import Disconnected, Frame, Message, Traffic
from rejoinder.pipeline import Channel, Closed, Overloaded, ProtocolError

log = logging.getLogger(__name__)

PACKETS_READ = 4096
"""Most bytes in one read."""
PACKET_HEAD = 3
"""Bytes before a packet's payload: its kind and its length."""
FIRST_AUDIO_SECONDS = 10.0
"""Longest wait for the first audio of a connection, in seconds."""
AUDIOSOCKET_SEND_SECONDS = 5.0
"""The call ends when Asterisk takes no bytes for this long, in seconds."""
AUDIOSOCKET_LINGER_SECONDS = 1.0
"""Longest wait for Asterisk to close its side, in seconds. Closing with unread bytes would reset the
connection and lose the last packet."""


class Line:
    """A ``Transport`` of one TCP connection. Text frames are marks that were played."""

    where = "AudioSocket"

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.is_open = True
        self.client: Address = writer.get_extra_info("peername")
        self.traffic = Traffic()
        self._reader = reader
        self._writer = writer
        self._packets = Packets()
        self._came: Channel[str | bytes] = Channel(64, "audiosocket")
        self._queue = Queue()
        self._wrong = ""

    async def run(self) -> None:
        """Read packets, and send those that are due, until the connection ends. Cancelling stops both."""
        try:
            async with asyncio.TaskGroup() as tasks:
                pacing = tasks.create_task(self._pace())
                await self._read()
                pacing.cancel()
        except* (OSError, TimeoutError) as errors:
            log.debug("AudioSocket: %s", errors.exceptions[0])
        finally:
            self.is_open = False
            self._came.close()

    async def _read(self) -> None:
        head = b""
        while data := await self._reader.read(PACKETS_READ):
            if len(head) < PACKET_HEAD:
                head = (head + data)[:PACKET_HEAD]
                self._wrong = misbegun(head)
            if self._wrong:  # drop all further bytes, but read them, so that the hang-up packet arrives
                self._came.close()
                continue
            for whole in self._packets.feed(data):
                if self.is_open:
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
                async with asyncio.timeout(AUDIOSOCKET_SEND_SECONDS):
                    await self._writer.drain()
                self.traffic.sent += len(whole)
            # Do not catch up after a late tick: Asterisk drops packets that arrive too early.
            due = max(due + TICK_SECONDS, loop.time())
            await asyncio.sleep(due - loop.time())

    async def start(self) -> AudioSocket:
        """Wait for the first audio, whose kind is the sample rate; return the call. Raises ProtocolError.

        Cancelling stops waiting and leaves the connection open.
        """
        id_ = ""
        try:
            async with asyncio.timeout(FIRST_AUDIO_SECONDS):
                while True:
                    whole = await self._came.receive()
                    if isinstance(whole, str):
                        continue
                    id_ = identifier(whole) or id_
                    if carrier := started(whole):
                        carrier.id = id_
                        return carrier
        except TimeoutError:
            raise ProtocolError(f"no audio within {FIRST_AUDIO_SECONDS:g} s") from None
        except Closed:
            raise ProtocolError(self._wrong or "it was closed before its start") from None

    async def receive(self) -> list[Frame] | Disconnected:
        """Return the packets and marks since the last call, at least one. Cancelling loses none."""
        try:
            first = await self._came.receive()
        except Closed:
            return Disconnected()
        frames: list[Frame] = [first, *self._came.receive_nowait(self._came.size)]
        self.traffic.received += sum(len(frame) for frame in frames if isinstance(frame, bytes))
        return frames

    async def send(self, messages: Sequence[Message]) -> None:
        """Queue packets and marks. It never waits, so there is nothing to cancel. Raises Overloaded."""
        for message in messages:
            assert not isinstance(message, dict)  # the carrier encodes all messages
            self._queue.take(message)

    async def close(self, code: int, reason: str) -> None:
        """Hang up. It never waits, so there is nothing to cancel."""
        self.is_open = False
        with suppress(OSError):
            self._writer.write(packet(HANG_UP))
            self._writer.write_eof()


@asynccontextmanager
async def listening(
    host: str, port: int, serve: Callable[[Line], Awaitable[None]], failed: Callable[[Exception], None]
) -> AsyncIterator[None]:
    """Serve AudioSocket for the length of the block, then end its calls. Port 0 serves nothing.

    serve: runs one call. failed: called with the error where the port cannot be opened. Cancelling ends all
    calls.
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
        except (ProtocolError, Overloaded) as error:
            log_refused("AudioSocket", line.client, str(error))
            await line.close(CloseCode.POLICY_VIOLATION, str(error))
        finally:
            await asyncio.wait([running], timeout=AUDIOSOCKET_LINGER_SECONDS)
            running.cancel()
            await asyncio.wait([running])
            writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Our own task: asyncio's reports its cancellation as an error.
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
