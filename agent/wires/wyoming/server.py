"""Wyoming over TCP, for Home Assistant: a port of its own; a connection has one request after the other."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.wires.failures import reported
from rejoinder.agent.wires.wyoming.answers import Answers, failure
from rejoinder.agent.wires.wyoming.protocol import Event, Events, encode
from rejoinder.agent.wires.wyoming.requests import Request, Requests, Speak
from rejoinder.pipeline import Channel, Models, Overloaded, PipelineError, ProtocolError

log = logging.getLogger(__name__)

READ = 2**16
SEND_BUFFER = 64 * 2**10
"""Bytes the kernel may hold per socket: a client that stops reading stalls its own voice."""
MAX_CONNECTIONS = 64
"""At a time. One more takes the place of the one that has been silent longest; where all of them wait for an
answer, it is refused."""
MAX_REQUESTS = 8
"""Of one connection that wait for the one before."""
IDLE_SECONDS = 60.0
"""A client that sends no whole event for so long, while nothing is done for it, is hung up on."""
SEND_SECONDS = 30.0
"""So is one that takes nothing for so long."""
LINGER_SECONDS = 2.0
"""So long a client may go on sending after an error: a close before that resets, and the error is lost."""


class Connection:
    """One client."""

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
        """Tell whether the client waits for us, and not we for the client."""
        unfinished = isinstance(self._request, Speak) and not self._request.texts.closed
        return self._request is not None and not unfinished

    async def run(self) -> None:
        """Answer requests until the client goes, which ends the one that runs."""
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
        """Say what is wrong, and close."""
        public = reported(f"Wyoming: {self._name}", "it was closed", error)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                self._writer.write(encode(failure(public)))
                self._writer.write_eof()
                while await self._reader.read(READ):
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
        """Return what came, b"" at the end. Raises ProtocolError where nothing comes."""
        while True:
            try:
                async with asyncio.timeout_at(self.last_event + IDLE_SECONDS):
                    return await self._reader.read(READ)
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
                    async with asyncio.timeout(SEND_SECONDS):
                        await self._writer.drain()
            self._request, self.last_event = None, asyncio.get_running_loop().time()


class Port:
    """The connections of all clients."""

    def __init__(self, answers: Answers) -> None:
        self.connections: dict[asyncio.Task[None], Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers = answers
        self._count = 0

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Begin with a new client."""
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
        """Hang up on everybody."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.connections.pop(task, None)

    def _make_room(self) -> bool:
        """Let the quietest client go where there are too many; return whether there is room for one more."""
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
        if writer.transport.get_write_buffer_size():  # nobody takes it, and a close would wait for that
            writer.transport.abort()
        writer.close()


def address(settings: Settings) -> str:
    """Return where to listen: beyond this machine only with ``open_to_all``, as Wyoming knows no keys."""
    if settings.open_to_all or settings.local:
        return settings.host
    log.warning("wyoming_port serves this machine only: Wyoming knows no keys; see open_to_all")
    return "127.0.0.1"


@asynccontextmanager
async def wyoming(
    settings: Settings, models: Callable[[], Models | None], failed: Callable[[Exception], None]
) -> AsyncIterator[None]:
    """Serve Wyoming for the length of the block, if there is a port for it.

    models: returns None while they load. failed: is told where the port cannot be listened on.
    """
    if not settings.wyoming_port:
        yield
        return
    port = Port(Answers(settings, models))
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
