"""The socket of a call: its methods, its close codes, and what its messages carry beside their content."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Protocol, cast

from starlette.websockets import WebSocketDisconnect, WebSocketState

from rejoinder.agent.logs import one_line
from rejoinder.agent.wires.call_log import Address
from rejoinder.agent.wires.long_messages import Long

ABNORMAL = 1006
NORMAL, GOING_AWAY, NO_CODE, POLICY_VIOLATION, INTERNAL_ERROR = 1000, 1001, 1005, 1008, 1011
TRY_AGAIN_LATER = 1013
PRIVATE = 3000
"""Close codes from here on mean what a client wants them to mean."""
ALIVE = "rejoinder.alive"
"""The key in a WebSocket's scope of the loop time at which its client was last heard of."""
BEHIND = "rejoinder.behind"
"""The key under which a message has a function that takes those that were read with it, in order."""
CUT = "rejoinder.cut"
"""The key under which a message has its ``Long``, where it is one: its text is "" then."""


class Socket(Protocol):
    """What a call needs of a connection: a WebSocket's methods, by Starlette's names."""

    @property
    def client(self) -> Address:
        """Whose it is."""

    @property
    def application_state(self) -> WebSocketState:
        """Whether it is open."""

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next message as ASGI has it."""

    async def send_text(self, data: str) -> None:
        """Send a text message."""

    async def send_bytes(self, data: bytes) -> None:
        """Send a binary message."""

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        """Close it."""


async def hang_up(websocket: Socket, code: int, reason: str) -> None:
    """Close a socket that is open, but for code 0; one that takes nothing any more is given up on."""
    if not code or websocket.application_state is not WebSocketState.CONNECTED:
        return
    with suppress(TimeoutError, RuntimeError, WebSocketDisconnect):
        async with asyncio.timeout(1.0):
            await websocket.close(code, reason[:120])


def farewell(code: int, reason: str) -> str:
    """Return why a call is over whose socket closed. reason: the client's words, or ours for what it did."""
    if code == ABNORMAL:
        return "the connection broke off"
    if code in (NORMAL, GOING_AWAY, NO_CODE) or code >= PRIVATE:
        return f"the client has left: {one_line(reason)}" if reason else "the client has left"
    return one_line(reason) or f"the connection was closed with {code}"


def frame_of(message: Mapping[str, Any]) -> str | bytes | Long:
    """Return what a client has sent, by its message."""
    found: str | bytes | Long | None = message.get(CUT) or message.get("text")
    return cast("bytes", message["bytes"]) if found is None else found
