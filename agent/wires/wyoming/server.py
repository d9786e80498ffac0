"""Wyoming over TCP, for Home Assistant, on its own port. A connection's requests run one after the other."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.wires.call_log import Address
from rejoinder.agent.wires.failures import reported
from rejoinder.agent.wires.operating.admission import Admission
from rejoinder.agent.wires.socket import SEND_BUFFER_BYTES
from rejoinder.agent.wires.wyoming.answers import Answers, error_event
from rejoinder.agent.wires.wyoming.protocol import Event, Events, encode
from rejoinder.agent.wires.wyoming.requests import Describe, Ping, Request, Requests, Speak
from rejoinder.pipeline import Channel, Models, Overloaded, PipelineError, ProtocolError
from rejoinder.pipeline.engines import call_id

log = logging.getLogger(__name__)

WYOMING_READ_BYTES = 2**16
"""Most bytes in one read."""
MAX_CONNECTIONS = 64
"""Most connections at a time. One more replaces the connection that has been silent longest. If all of them
wait for answers, the new one is refused."""
MAX_REFUSED = 64
"""Most refused connections that wait for their clients to read why. Further ones are closed at once."""
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
    """One client's connection. last_event: the loop time of its last event or answer.

    client: its address. admission: decides about its requests.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answers: Answers,
        name: str,
        admission: Admission,
    ) -> None:
        self.last_event = asyncio.get_running_loop().time()
        self.client: Address = writer.get_extra_info("peername")
        self._admission = admission
        self._reader, self._writer = reader, writer
        self._answers = answers
        self._name = name
        self._requests: Channel[Request] = Channel(MAX_REQUESTS, "wyoming")
        self._request: Request | None = None

    @property
    def answering(self) -> bool:
        """Whether a request is being answered, or its rest is awaited."""
        return self._request is not None

    @property
    def waits(self) -> bool:
        """Whether the client waits for an answer, and not the server for the rest of a request."""
        unfinished = isinstance(self._request, Speak) and not self._request.texts.closed
        return self._request is not None and not unfinished

    async def run(self) -> None:
        """Answer requests until the client leaves. Leaving and cancelling both stop the current request."""
        call_id.current.set(f"wyoming {self._name}".replace(" ", "-"))
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
        await say_last(self._reader, self._writer, error_event(public))

    async def _read(self) -> None:
        events, requests = Events(), Requests()
        while data := await self._more():
            for event in events.feed(data):
                self.last_event = asyncio.get_running_loop().time()
                request = requests.take(event)
                if request is not None and not self._requests.send_nowait(request):
                    raise Overloaded(
                        f"{MAX_REQUESTS} requests of this connection wait already: wait for an answer"
                    )

    async def _more(self) -> bytes:
        """Return the next bytes, b"" at the end. Raises ProtocolError after ``IDLE_SECONDS``."""
        while True:
            since = self.last_event
            try:
                async with asyncio.timeout_at(since + IDLE_SECONDS):
                    return await self._reader.read(WYOMING_READ_BYTES)
            except TimeoutError:
                if self.waits:
                    self.last_event = asyncio.get_running_loop().time()
                elif self.last_event == since:  # else an answer has ended meanwhile
                    raise ProtocolError(
                        f"no complete event arrived for {IDLE_SECONDS:g} s", "timeout"
                    ) from None

    async def _answer(self) -> None:
        async for request in self._requests:
            self._request = request
            log.debug("Wyoming: %s: %s", self._name, type(request).__name__)
            async with aclosing(self._answered(request)) as events:
                async for event in events:
                    self._writer.write(encode(event))
                    async with asyncio.timeout(WYOMING_SEND_SECONDS):
                        await self._writer.drain()
            self._request, self.last_event = None, asyncio.get_running_loop().time()

    async def _answered(self, request: Request) -> AsyncGenerator[Event, None]:
        free = isinstance(request, Describe | Ping)
        if reason := "" if free else await self._admission.ask(self.client):
            log.warning("Wyoming: %s: a request was refused: %s", self._name, reason)
            yield refusal(reason)
            return
        async with aclosing(self._answers.answer(request, self._name)) as events:
            async for event in events:
                yield event


async def say_last(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, event: Event) -> None:
    """Send the last event of a connection, and wait until the client closes its side. Cancelling does not."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(WYOMING_LINGER_SECONDS):
            writer.write(encode(event))
            writer.write_eof()
            while await reader.read(WYOMING_READ_BYTES):
                pass


def refusal(reason: str) -> Event:
    """Return the event for a connection or a request that is not taken now."""
    return Event("error", {"text": reason, "code": "overloaded"})


class Port:
    """All connections of the port. admission: decides about connections and requests."""

    def __init__(self, answers: Answers, admission: Admission) -> None:
        self.connections: dict[asyncio.Task[None], Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused = 0
        self._answers = answers
        self._admission = admission
        self._count = 0

    @property
    def answering(self) -> bool:
        """Whether a request is in progress."""
        return any(connection.answering for connection in self.connections.values())

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a new client, or refuse it."""
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        task = asyncio.create_task(self._serve(reader, writer), name="wyoming")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client: Address = writer.get_extra_info("peername")
        try:
            if not (reason := await self._admission.begin(client)):
                try:
                    reason = await self._run(reader, writer)
                finally:
                    self._admission.end(client)
            if reason:
                log.warning("Wyoming: a connection was refused: %s", reason)
                await self._refuse(reader, writer, reason)
        finally:
            if writer.transport.get_write_buffer_size():  # unread by the client; a close would wait for it
                writer.transport.abort()
            writer.close()

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Serve a client to its end, or return why there is no room for it."""
        if not self._make_room():
            return f"all {MAX_CONNECTIONS} connections are busy"
        task = asyncio.current_task()
        assert task
        self._count += 1
        name = f"connection {self._count}"
        connection = Connection(reader, writer, self._answers, name, self._admission)
        self.connections[task] = connection
        try:
            await connection.run()
        finally:
            self.connections.pop(task, None)
        return ""

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reason: str) -> None:
        """Say why a connection is refused, unless too many clients are being told."""
        if self._refused >= MAX_REFUSED:
            writer.transport.abort()
            return
        self._refused += 1
        try:
            await say_last(reader, writer, refusal(reason))
        finally:
            self._refused -= 1

    async def close(self) -> None:
        """Close all connections and wait until they are gone. Cancelling stops waiting."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

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
    admission: Admission,
) -> AsyncIterator[Port]:
    """Serve Wyoming for the length of the block. Port 0 serves nothing.

    models: returns the models, None while they load. failed: called with the error where the port cannot be
    opened. admission: decides about connections and requests. Cancelling closes all connections.
    """
    port = Port(Answers(settings, models), admission)
    if not settings.wyoming_port:
        yield port
        return
    try:
        server = await asyncio.start_server(port.connected, address(settings), settings.wyoming_port)
    except OSError as error:
        failed(ConfigError(f"wyoming_port {settings.wyoming_port}: {error.strerror}"))
        yield port
        return
    try:
        yield port
    finally:
        server.close()
        await port.close()
