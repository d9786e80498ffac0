"""Wyoming over TCP, for Home Assistant, on its own port. A connection's requests run one after the other."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

from rejoinder.agent.app.hosting import Hosting
from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.wires.failures import reported
from rejoinder.agent.wires.wyoming.answers import Answers, failure
from rejoinder.agent.wires.wyoming.protocol import Event, Events, encode
from rejoinder.agent.wires.wyoming.requests import Request, Requests, Speak
from rejoinder.pipeline import Channel, Models, Overloaded, PipelineError, ProtocolError
from rejoinder.pipeline.engines import call_id

log = logging.getLogger(__name__)

EVENTS_READ = 2**16
"""Most bytes in one read."""
SEND_BUFFER = 64 * 2**10
"""Bytes that the kernel buffers per socket. It is small, so that synthesis stops when a client stops
reading."""
MAX_CONNECTIONS = 64
"""Most connections at a time. One more replaces the connection that has been silent longest. If all of them
wait for answers, the new one is refused."""
MAX_REQUESTS = 8
"""Most requests of one connection that wait for the one before."""
IDLE_SECONDS = 60.0
"""A connection without a request is closed after this time without a complete event, in seconds."""
WYOMING_SEND_SECONDS = 30.0
"""A connection is closed when its client takes no bytes for this long, in seconds."""
WYOMING_LINGER_SECONDS = 2.0
"""Longest wait for the client to close its side after an error, in seconds. Closing with unread bytes would
reset the connection and lose the error."""


class Connection:
    """One client's connection. last_event: the loop time of its last event or answer."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: Answers, name: str
    ) -> None:
        self.last_event = asyncio.get_running_loop().time()
        self._reader, self._writer = reader, writer
        self._answers = answers
        self._name = name
        self._requests: Channel[Request] = Channel(MAX_REQUESTS, "wyoming")
        self._request: Request | None = None

    @property
    def waits(self) -> bool:
        """Whether the client waits for an answer, and not the server for the rest of a request."""
        unfinished = isinstance(self._request, Speak) and not self._request.texts.closed
        return self._request is not None and not unfinished

    async def run(self) -> None:
        """Answer requests until the client leaves. Leaving and cancelling both stop the current request."""
        call_id.current.set(f"wyoming-{self._name}".replace(" ", "-"))
        try:
            async with asyncio.TaskGroup() as tasks:
                answering = tasks.create_task(self._answer())
                await self._read()
                answering.cancel()
        except* PipelineError as errors:
            await self.refuse(errors.exceptions[0])
        except* (OSError, TimeoutError) as errors:
            log.debug("Wyoming: %s", errors.exceptions[0])

    async def refuse(self, error: BaseException) -> None:
        """Send an error and close the connection. Cancelling closes it without waiting for the client."""
        public = reported(f"Wyoming: {self._name}", "it was closed", error)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(WYOMING_LINGER_SECONDS):
                self._writer.write(encode(failure(public)))
                self._writer.write_eof()
                while await self._reader.read(EVENTS_READ):
                    pass

    async def _read(self) -> None:
        events, requests = Events(), Requests()
        while data := await self._more():
            for event in events.feed(data):
                self.last_event = asyncio.get_running_loop().time()
                request = requests.take(event)
                if request is not None and not self._requests.send_nowait(request):
                    raise Overloaded(f"{MAX_REQUESTS} requests of this connection wait already")

    async def _more(self) -> bytes:
        """Return the next bytes, b"" at the end. Raises ProtocolError after ``IDLE_SECONDS``."""
        while True:
            try:
                async with asyncio.timeout_at(self.last_event + IDLE_SECONDS):
                    return await self._reader.read(EVENTS_READ)
            except TimeoutError:
                if not self.waits:
                    raise ProtocolError(f"nothing came for {IDLE_SECONDS:g} s", "timeout") from None
                self.last_event = asyncio.get_running_loop().time()

    async def _answer(self) -> None:
        async for request in self._requests:
            self._request = request
            log.debug("Wyoming: %s: %s", self._name, type(request).__name__)
            async with aclosing(self._answers.answer(request, self._name)) as events:
                async for event in events:
                    self._writer.write(encode(event))
                    async with asyncio.timeout(WYOMING_SEND_SECONDS):
                        await self._writer.drain()
            self._request, self.last_event = None, asyncio.get_running_loop().time()


class Port:
    """All connections of the port."""

    def __init__(self, answers: Answers) -> None:
        self.connections: dict[asyncio.Task[None], Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers = answers
        self._count = 0

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a new client, or refuse it where all connections are busy."""
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        if not self._make_room():
            reason = f"all {MAX_CONNECTIONS} connections are busy"
            log.warning("Wyoming: %s", reason)
            writer.write(encode(Event("error", {"text": reason, "code": "overloaded"})))
            writer.close()
            return
        self._count += 1
        connection = Connection(reader, writer, self._answers, f"connection {self._count}")
        task = asyncio.create_task(_serve(connection, writer), name="wyoming")
        self.connections[task] = connection
        self._tasks.add(task)
        task.add_done_callback(self._gone)

    async def close(self) -> None:
        """Close all connections and wait until they are gone. Cancelling stops waiting."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.connections.pop(task, None)

    def _make_room(self) -> bool:
        """Close the most idle connection if there are too many; return whether there is room for one more."""
        if len(self.connections) < MAX_CONNECTIONS:
            return True
        quiet = [task for task, each in self.connections.items() if not each.waits]
        if not quiet:
            return False
        first = min(quiet, key=lambda task: self.connections[task].last_event)
        del self.connections[first]
        first.cancel()
        return True


async def _serve(connection: Connection, writer: asyncio.StreamWriter) -> None:
    try:
        await connection.run()
    finally:
        if writer.transport.get_write_buffer_size():  # unread by the client; a close would wait for it
            writer.transport.abort()
        writer.close()


def address(settings: Settings) -> str:
    """Return the host to listen on: 127.0.0.1 unless ``open_to_all`` is set, because Wyoming has no keys."""
    if settings.open_to_all or settings.local:
        return settings.host
    log.warning("wyoming_port serves this machine only: Wyoming knows no keys; see open_to_all")
    return "127.0.0.1"


@asynccontextmanager
async def wyoming(
    settings: Settings,
    models: Callable[[], Models | None],
    failed: Callable[[Exception], None],
    hosting: Hosting,
) -> AsyncIterator[None]:
    """Serve Wyoming for the length of the block. Port 0 serves nothing.

    models: returns the models, None while they load. failed: called with the error where the port cannot be
    opened. hosting: runs the integrator's agent. Cancelling closes all connections.
    """
    if not settings.wyoming_port:
        yield
        return
    port = Port(Answers(settings, models, hosting))
    try:
        server = await asyncio.start_server(port.connected, address(settings), settings.wyoming_port)
    except OSError as error:
        failed(ConfigError(f"wyoming_port {settings.wyoming_port}: {error.strerror}"))
        yield
        return
    try:
        yield
    finally:
        server.close()
        await port.close()
