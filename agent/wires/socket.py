"""The socket of a call: its methods, its close codes, and the extra keys of its ASGI messages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Protocol, cast

from starlette.websockets import WebSocketDisconnect, WebSocketState

from rejoinder.agent.logs import one_line
from rejoinder.agent.wires.call_log import Address
from rejoinder.agent.wires.long_messages import Long

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
"""Key in a message: its ``Long``, if it is one. The message's text is "" then."""


class Socket(Protocol):
    """The connection that a call needs: a WebSocket's methods, under Starlette's names."""

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


def frame_of(message: Mapping[str, Any]) -> str | bytes | Long:
    """Return the content of an ASGI message: text, bytes, or a message too long to keep whole."""
    found: str | bytes | Long | None = message.get(CUT) or message.get("text")
    return cast("bytes", message["bytes"]) if found is None else found
