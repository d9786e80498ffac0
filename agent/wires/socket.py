"""The connection of a call: its messages in and out, its close codes, and the extra keys of ASGI messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.websockets import WebSocketDisconnect, WebSocketState

from rejoinder.agent.logs import one_line
from rejoinder.agent.wires.call_log import Address
from rejoinder.pipeline import Overloaded

NORMAL = 1000
"""Close code: the call is over. The close codes are those of RFC 6455, 7.4.1, and IANA's registry."""
GOING_AWAY = 1001
"""Close code: the client leaves the page, or the server ends the call."""
NO_CODE = 1005
"""Close code: the close frame had no code."""
ABNORMAL = 1006
"""Close code: the connection broke without a close frame."""
POLICY_VIOLATION = 1008
"""Close code: the client did something that is not allowed."""
INTERNAL_ERROR = 1011
"""Close code: the server failed."""
TRY_AGAIN_LATER = 1013
"""Close code: the server is busy."""
PRIVATE = 3000
"""Close codes from here on are the client's own."""
ALIVE = "rejoinder.alive"
"""Key in a WebSocket's scope: the loop time at which its client last sent anything."""
BEHIND = "rejoinder.behind"
"""Key in a message: a function that takes the messages that were read together with it, in order."""
CUT = "rejoinder.cut"
"""Key in a message that is too long to keep whole: its ``long_messages.Long``. Its text is "" then."""


WEBSOCKET_SEND_SECONDS = 5.0
"""Longest wait for a client that does not read, in seconds."""

Message = dict[str, Any] | str | bytes
"""What a client is sent: a dictionary, which becomes JSON, or a text or binary message as it is."""


class Socket(Protocol):
    """One connection: a WebSocket's methods, under Starlette's names."""

    @property
    def client(self) -> Address:
        """The client's address."""

    @property
    def application_state(self) -> WebSocketState:
        """Whether it is open."""

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next ASGI message. Cancelling leaves the message for the next call."""

    async def send_text(self, data: str) -> None:
        """Send a text message. Cancelling may leave it unsent."""

    async def send_bytes(self, data: bytes) -> None:
        """Send a binary message. Cancelling may leave it unsent."""

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        """Close the connection. Cancelling may leave it open."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The client's connection broke off, and the client may come back.

    message: the ASGI message of its end. since: the loop time at which the client last sent anything. reason:
    for the log, "" if another connection took over. seconds: longest wait for the client. empty: whether
    there is nothing to come back for.
    """

    message: MutableMapping[str, Any]
    since: float
    reason: str
    seconds: float
    empty: bool


@dataclass(frozen=True, slots=True)
class ClientAway:
    """The client is away, for ``seconds`` since the last notice, and has sent no audio."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Resumed:
    """The client is back.

    catch_up: sends what the client missed, before anything else. It takes the reply that was audible last and
    the seconds of it that were heard, and a function that it calls before it sends: with the seconds at the
    end of each reply that the client receives again. Cancelling may leave messages unsent.
    """

    client: Address
    catch_up: Callable[[tuple[int, float] | None, Callable[[Mapping[int, float]], None]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Gone:
    """The client has not come back in time. reason: for the log and for watchers."""

    reason: str


ConnectionChange = Lost | ClientAway | Resumed | Gone


class CallSocket(Protocol):
    """What a call needs of its client's connection, which may be several sockets, one after the other."""

    async def receive(self) -> MutableMapping[str, Any] | ConnectionChange:
        """Return the next ASGI message, or a change of the connection. Cancelling loses no message."""

    async def send(self, messages: Sequence[Message]) -> None:
        """Send messages in order, with no others between them. Cancelling may leave some unsent.

        Raises Overloaded after ``WEBSOCKET_SEND_SECONDS``, and WebSocketDisconnect.
        """


class PlainSocket:
    """A ``CallSocket`` of one socket."""

    def __init__(self, socket: Socket) -> None:
        self.receive = socket.receive
        self._socket = socket
        self._writing = asyncio.Lock()
        self._sending: asyncio.Timeout | None = None

    async def send(self, messages: Sequence[Message]) -> None:
        """Send messages in order, with no others between them. Cancelling may leave some unsent.

        Raises Overloaded after ``WEBSOCKET_SEND_SECONDS``, and WebSocketDisconnect.
        """
        async with self._writing:
            for message in messages:
                await self.write(json.dumps(message) if isinstance(message, dict) else message)

    async def write(self, data: str | bytes) -> None:
        """Send one message, where none other is being sent. Raises what ``send`` raises.

        Cancelling may leave it unsent.
        """
        if self._socket.application_state is not WebSocketState.CONNECTED:
            return
        try:
            async with asyncio.timeout(WEBSOCKET_SEND_SECONDS) as self._sending:
                if isinstance(data, bytes):
                    await self._socket.send_bytes(data)
                else:
                    await self._socket.send_text(data)
        except TimeoutError:
            raise Overloaded(f"the client has not read for {WEBSOCKET_SEND_SECONDS:g} s") from None
        except RuntimeError as error:  # Starlette raises this for a socket that is already closed
            raise WebSocketDisconnect(reason=str(error)) from None
        finally:
            self._sending = None

    def stop(self) -> None:
        """End a ``write`` that waits, with Overloaded."""
        if self._sending is not None:
            with suppress(RuntimeError):  # the timeout has just expired
                self._sending.reschedule(0.0)
            self._sending = None


async def hang_up(websocket: Socket, code: int, reason: str) -> None:
    """Close the socket if it is open and the code is not 0. Gives up after 1 s.

    Cancelling leaves the socket to the server, which drops it.
    """
    if not code or websocket.application_state is not WebSocketState.CONNECTED:
        return
    with suppress(TimeoutError, RuntimeError, WebSocketDisconnect):
        async with asyncio.timeout(1.0):
            await websocket.close(code, reason[:120])


def farewell(code: int, reason: str) -> str:
    """Return why a call is over, after its socket closed. reason: that of the close frame, by either side."""
    if code == ABNORMAL:
        return "the connection broke off"
    if code in (NORMAL, GOING_AWAY, NO_CODE) or code >= PRIVATE:
        return f"the client has left: {one_line(reason)}" if reason else "the client has left"
    return one_line(reason) or f"the connection was closed with {code}"
