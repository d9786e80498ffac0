"""A client's connection as a call sees it: typed frames come in, messages go out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from websockets.frames import CloseCode

from rejoinder.agent.logs import one_line
from rejoinder.agent.wires.call_log import Address
from rejoinder.agent.wires.long_messages import Long
from rejoinder.pipeline import Overloaded

PRIVATE = 3000
"""Close codes from here on are the client's own."""
ALIVE = "rejoinder.alive"
"""Key in a WebSocket's scope: the loop time at which its client last sent anything."""
FRAMES = "rejoinder.frames"
"""Key in a WebSocket's message: the list of all frames that were read together, of which it is the first."""
WEBSOCKET_SEND_SECONDS = 5.0
"""Longest wait for a client that does not read, in seconds."""
HANG_UP_SECONDS = 1.0
"""Longest wait for the closing of a connection, in seconds."""

Frame = str | bytes | Long
"""One message of a client: text, bytes, or one that is too long to be kept whole."""
Message = dict[str, Any] | str | bytes
"""What a client is sent: a dictionary, which becomes JSON, or a text or binary message as it is."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is closed, with a code of RFC 6455 and a reason."""

    code: int = CloseCode.NO_STATUS_RCVD
    reason: str = ""

    def farewell(self) -> str:
        """Return why the call is over. The reason may be of either side's close frame."""
        if self.code == CloseCode.ABNORMAL_CLOSURE:
            return "the connection broke off"
        left = (CloseCode.NORMAL_CLOSURE, CloseCode.GOING_AWAY, CloseCode.NO_STATUS_RCVD)
        if self.code in left or self.code >= PRIVATE:
            return f"the client has left: {one_line(self.reason)}" if self.reason else "the client has left"
        return one_line(self.reason) or f"the connection was closed with {self.code}"


@dataclass(slots=True)
class Traffic:
    """What connections have carried: bytes received and sent, and the clients that did not read in time."""

    received: int = 0
    sent: int = 0
    stalls: int = 0


class Unsent(Exception):
    """A message was not sent, because the connection is closed."""


class Transport(Protocol):
    """One connection of a client. traffic: counts its messages; it may be shared with other connections."""

    traffic: Traffic

    @property
    def client(self) -> Address:
        """The client's address."""

    @property
    def where(self) -> str:
        """The path or the port that was called."""

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, as far as this side knows."""

    async def receive(self) -> list[Frame] | Disconnected:
        """Return the frames that have come since the last call, at least one. Cancelling loses none."""

    async def send(self, messages: Sequence[Message]) -> None:
        """Send messages in order, with no others between them. Cancelling may leave some unsent.

        Raises Overloaded if the client does not read, and Unsent.
        """

    async def close(self, code: int, reason: str) -> None:
        """Close the connection. Cancelling may leave it open."""


class WebSocketTransport:
    """A ``Transport`` of one WebSocket, which is accepted."""

    def __init__(self, websocket: WebSocket) -> None:
        self.client = websocket.client
        self.where = websocket.url.path
        self.traffic = Traffic()
        self._websocket = websocket
        self._began = asyncio.get_running_loop().time()
        self._unread: list[Frame] = []
        self._writing = asyncio.Lock()
        self._sending: asyncio.Timeout | None = None

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, as far as this side knows."""
        return self._websocket.application_state is WebSocketState.CONNECTED

    @property
    def alive(self) -> float:
        """The loop time at which the client last sent anything, such as a pong."""
        return float(self._websocket.scope.get(ALIVE, self._began))

    async def receive(self) -> list[Frame] | Disconnected:
        """Return the frames that have come since the last call, at least one. Cancelling loses none."""
        if self._unread:
            frames, self._unread = self._unread, []
            return frames
        message: MutableMapping[str, Any] = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            code = int(message.get("code") or CloseCode.NO_STATUS_RCVD)
            return Disconnected(code, message.get("reason") or "")
        # Only the connections of our own server have frames; another server gives one message at a time.
        text = message.get("text")
        frames = message.get(FRAMES) or [message["bytes"] if text is None else text]
        self.traffic.received += sum(map(len, frames))
        return frames

    def put_back(self, frames: list[Frame]) -> None:
        """Let the next ``receive`` return frames once more."""
        self._unread = frames

    async def send(self, messages: Sequence[Message]) -> None:
        """Send messages in order, with no others between them. Cancelling may leave some unsent.

        Raises Overloaded after ``WEBSOCKET_SEND_SECONDS``, and Unsent.
        """
        async with self._writing:
            for message in messages:
                await self.write(json.dumps(message) if isinstance(message, dict) else message)

    async def write(self, data: str | bytes) -> None:
        """Send one message, while no other is being sent. Raises what ``send`` raises.

        Cancelling may leave it unsent.
        """
        if self._websocket.application_state is not WebSocketState.CONNECTED:
            return
        try:
            async with asyncio.timeout(WEBSOCKET_SEND_SECONDS) as self._sending:
                if isinstance(data, bytes):
                    await self._websocket.send_bytes(data)
                else:
                    await self._websocket.send_text(data)
            self.traffic.sent += len(data)
        except TimeoutError:
            self.traffic.stalls += self._sending is not None
            raise Overloaded(f"the client has not read for {WEBSOCKET_SEND_SECONDS:g} s") from None
        except (RuntimeError, WebSocketDisconnect) as error:  # Starlette's for a socket that is closed
            raise Unsent(str(error)) from None
        finally:
            self._sending = None

    def stop(self) -> None:
        """End a ``write`` that waits, with Overloaded."""
        if self._sending is not None:
            with suppress(RuntimeError):  # the timeout has just expired
                self._sending.reschedule(0.0)
            self._sending = None

    async def close(self, code: int, reason: str) -> None:
        """Close the connection. Cancelling may leave it open."""
        with suppress(RuntimeError, WebSocketDisconnect):
            await self._websocket.close(code, reason)


async def hang_up(transport: Transport, code: int, reason: str) -> None:
    """Close a connection if it is open and the code is not 0; give up after ``HANG_UP_SECONDS``.

    Cancelling leaves the connection to the server, which drops it.
    """
    if not code or not transport.is_open:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(HANG_UP_SECONDS):
            await transport.close(code, reason[:120])
