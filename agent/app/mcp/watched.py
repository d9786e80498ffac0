"""Notices the end of a transport: of a server's process, above all, while no call waits for an answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from mcp.client import Transport
from mcp.client._transport import ReadStream, TransportStreams
from mcp.shared.message import SessionMessage

Received = SessionMessage | Exception
"""What a transport yields."""


@asynccontextmanager
async def watched(transport: Transport, ended: Callable[[], None]) -> AsyncGenerator[TransportStreams, None]:
    """Open a transport that calls ``ended`` when it has nothing more to read.

    It closes with the block, and when it is cancelled.
    """
    async with transport as (read, write):
        yield WatchedStream(read, ended), write


class WatchedStream:
    """A stream of messages that calls ``ended`` at its end."""

    def __init__(self, stream: ReadStream[Received], ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    @property
    def last_context(self) -> Any:
        """The context of the last message's sender, which the SDK looks for."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Received:
        """Return the next message. Cancelling loses none."""
        return await self._stream.receive()

    async def aclose(self) -> None:
        """Close the stream. There is nothing to cancel."""
        await self._stream.aclose()

    def __aiter__(self) -> WatchedStream:
        """Return the stream itself."""
        return self

    async def __anext__(self) -> Received:
        """Return the next message. Cancelling loses none."""
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._ended()
            raise

    async def __aenter__(self) -> WatchedStream:
        """Enter the stream. There is nothing to cancel."""
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Close the stream. There is nothing to cancel."""
        return await self._stream.__aexit__(kind, error, trace)
