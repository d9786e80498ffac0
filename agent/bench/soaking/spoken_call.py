"""A call of any spoken wire, in real time or in virtual time: speaks, plays what comes, and returns marks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from rejoinder.agent.bench.soaking.lines import SoakLine
from rejoinder.agent.bench.soaking.utterances import Utterance
from rejoinder.agent.wires.audiosocket.protocol import HANG_UP, Packets
from rejoinder.agent.wires.phone.carrier import Frame
from rejoinder.pipeline.audio.loudness import AUDIBLE
from rejoinder.pipeline.errors import PipelineError

OVER_AFTER_SECONDS = 0.8
"""The agent has finished when it has been silent for this long, in seconds."""
OPEN_SECONDS = 10.0
"""Longest wait for a connection, in seconds."""
AUDIBLE_SAMPLE = int(AUDIBLE * 2**15)
"""Amplitude of an audible 16-bit sample."""


class LineLost(PipelineError):
    """The server has closed the connection, or did not take it. The message says how."""


class FramePipe(Protocol):
    """A connection that carries messages."""

    async def send(self, frame: Frame) -> None:
        """Send a message. Cancelling may leave it unsent. Raises LineLost."""

    async def receive(self) -> Frame:
        """Return the next message. Cancelling loses none. Raises LineLost."""

    def abort(self) -> None:
        """Break the connection off, without an orderly end."""

    async def close(self) -> None:
        """End the connection in order. Cancelling breaks it off."""


class SocketPipe:
    """A WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, frame: Frame) -> None:
        """Send a message. Cancelling may leave it unsent. Raises LineLost."""
        try:
            await self._socket.send(frame)
        except ConnectionClosed as error:
            raise LineLost(str(error)) from error

    async def receive(self) -> Frame:
        """Return the next message. Cancelling loses none. Raises LineLost."""
        try:
            return await self._socket.recv()
        except ConnectionClosed as error:
            raise LineLost(str(error)) from error

    def abort(self) -> None:
        """Break the connection off, without a close frame."""
        self._socket.transport.abort()

    async def close(self) -> None:
        """Close with 1000. Cancelling breaks the connection off."""
        await self._socket.close()


class PacketPipe:
    """A TCP connection with the packets of AudioSocket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._packets = Packets()
        self._came: deque[bytes] = deque()

    async def send(self, frame: Frame) -> None:
        """Send a packet. Cancelling may leave it unsent. Raises LineLost."""
        try:
            self._writer.write(frame if isinstance(frame, bytes) else frame.encode())
            await self._writer.drain()
        except OSError as error:
            raise LineLost(str(error)) from error

    async def receive(self) -> Frame:
        """Return the next packet. Cancelling loses none. Raises LineLost."""
        try:
            while not self._came:
                if not (data := await self._reader.read(2**12)):
                    raise LineLost("the server has closed the connection")
                self._came.extend(self._packets.feed(data))
        except OSError as error:
            raise LineLost(str(error)) from error
        if self._came[0][0] == HANG_UP:
            raise LineLost("the server has hung up")
        return self._came.popleft()

    def abort(self) -> None:
        """Break the connection off with a reset."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Close the connection. It does not wait, so there is nothing to cancel."""
        self._writer.close()


async def open_socket(url: str) -> SocketPipe:
    """Open a WebSocket. Raises LineLost. Cancelling closes it."""
    try:
        return SocketPipe(
            await connect(url, compression=None, max_size=None, proxy=None, open_timeout=OPEN_SECONDS)
        )
    except InvalidStatus as error:
        raise LineLost(f"refused with HTTP {error.response.status_code}") from error
    except (OSError, TimeoutError, WebSocketException) as error:
        raise LineLost(f"cannot connect: {error}") from error


async def open_stream(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a TCP connection to this machine. Raises LineLost. Cancelling closes it."""
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            return await asyncio.open_connection("127.0.0.1", port)
    except (OSError, TimeoutError) as error:
        raise LineLost(f"cannot connect: {error}") from error


class SpokenCall:
    """A call in progress, from ``speaking``. Times are those of the event loop, in seconds.

    frame_s: length of the audio in one step of the microphone. place: where the call can be resumed, None
    where it cannot. garbled: whether the caller has sent garbage, for which the server may hang up.
    """

    def __init__(self, line: SoakLine, pipe: FramePipe, frame_s: float) -> None:
        self.line = line
        self.pipe = pipe
        self.place: tuple[str, str] | None = None
        self.garbled = False
        self._loop = asyncio.get_running_loop()
        self._frame_s = frame_s
        self._mouth = bytearray()
        self._played_until = self._loop.time() - OVER_AFTER_SECONDS
        self._marks: deque[tuple[float, str]] = deque()
        self._asked = self._loop.time()
        self._first: float | None = None
        self._tick = asyncio.Event()

    @property
    def is_quiet(self) -> bool:
        """Whether all of the agent's audio has been played for a while."""
        return self._loop.time() > self._played_until + OVER_AFTER_SECONDS

    def say(self, said: Utterance) -> None:
        """Begin to say something; ``answered`` counts from the end of its last word."""
        due = len(self._mouth) / (2 * self.line.rate)
        self._mouth += said.pcm[self.line.rate]
        self._asked, self._first = self._loop.time() + due + said.speech_s, None

    async def answered(self, seconds: float) -> float | None:
        """Return the seconds from the last word to the agent's first audible sample; None if none comes.

        seconds: longest wait after the last word. Cancelling ends the wait.
        """
        until = self._asked + seconds
        await self.until(lambda: self._first is not None or self._loop.time() > until)
        return None if self._first is None else self._first - self._asked

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, with one check per frame. Cancelling ends the wait."""
        while not condition():
            await self._tick.wait()

    async def hear_out(self, seconds: float) -> None:
        """Wait until the agent has finished, at most ``seconds``. Cancelling ends the wait."""
        until = self._loop.time() + seconds
        await self.until(lambda: self.is_quiet or self._loop.time() > until)

    async def speak(self) -> None:
        """Send the microphone's audio, silence included, and due marks, until cancelled. Raises LineLost."""
        size, due = 2 * int(self.line.rate * self._frame_s), self._loop.time()
        while True:
            due += self._frame_s
            await asyncio.sleep(due - self._loop.time())
            piece = bytes(self._mouth[:size]).ljust(size, b"\x00")
            del self._mouth[:size]
            for frame in self.line.audio(piece):
                await self.pipe.send(frame)
            while self._marks and self._marks[0][0] <= self._loop.time():
                await self._return(self._marks.popleft()[1])
            self._tick.set()
            self._tick = asyncio.Event()

    async def listen(self) -> None:
        """Take what the server sends, until it ends the call. Raises LineLost. Cancelling loses nothing."""
        while True:
            came = self.line.take(await self.pipe.receive())
            self.place = came.place or self.place
            if came.audio:
                self._play(came.audio)
            if came.mark:
                self._marks.append((self._played_until, came.mark))
            if came.cleared:
                self._played_until = min(self._played_until, self._loop.time())
                marks, self._marks = self._marks, deque()
                for _, name in marks:
                    await self._return(name)

    async def _return(self, mark: str) -> None:
        for frame in self.line.played(mark):
            await self.pipe.send(frame)

    def _play(self, pcm: bytes) -> None:
        samples = np.frombuffer(pcm, "<i2")
        begin = max(self._loop.time(), self._played_until)
        self._played_until = begin + len(samples) / self.line.rate
        loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > AUDIBLE_SAMPLE)
        if not len(loud):
            return
        at = begin + float(loud[0]) / self.line.rate
        if self._first is None and at >= self._asked:
            self._first = at


@asynccontextmanager
async def speaking(line: SoakLine, pipe: FramePipe, frame_s: float) -> AsyncIterator[SpokenCall]:
    """Hold a call for the length of the block, which then ends it. Raises LineLost if the server ends it.

    Cancelling stops speaking and listening.
    """
    call = SpokenCall(line, pipe, frame_s)
    try:
        for frame in line.opening():
            await pipe.send(frame)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(call.speak()), tasks.create_task(call.listen())]
            yield call
            for task in running:
                task.cancel()
    except BaseExceptionGroup as group:
        lost, others = group.split(LineLost)
        raise (others or lost or group).exceptions[0] from group
