"""Decides which WebSockets become calls, and how the others are refused."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket
from websockets.frames import CloseCode

from rejoinder.agent.config import Settings
from rejoinder.agent.server.access import decline, may_call, shown
from rejoinder.agent.server.denial import Denial
from rejoinder.agent.server.keys import Keys
from rejoinder.agent.server.limits import BUSY_SECONDS, Limits
from rejoinder.agent.server.operating.lines import Lines
from rejoinder.agent.wires.transport import WebSocketTransport
from rejoinder.pipeline import Overloaded, ProtocolError

TRY_AGAIN = "the models are still loading: try again in a few seconds"
"""The error message while the models still load."""
CONVERSATION = "rejoinder-conversation"
"""The header of an accepted handshake that names the conversation, so that a balancer can note its server."""


class Admission:
    """Accepts WebSockets. keys, limits: of clients. lines: of the server.

    closed: returns why no new call is taken now, "" if calls are taken.
    """

    def __init__(
        self, settings: Settings, keys: Keys, limits: Limits, lines: Lines, closed: Callable[[], str]
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._limits = limits
        self._lines = lines
        self._closed = closed
        self._beginning: set[object] = set()

    def welcome(self, origin: str | None, host: str) -> bool:
        """Return whether pages of an origin may call this host."""
        allowed = self._settings.allowed_origins.split()
        return may_call(origin, host, allowed, self._settings.local)

    def stranger(self, websocket: HTTPConnection) -> Denial | None:
        """Return the denial of a call from a page of another origin, None for any other call."""
        origin, host = websocket.headers.get("origin"), websocket.headers.get("host", "")
        if self.welcome(origin, host):
            return None
        reason = f"pages from {origin} may not call; see the setting allowed_origins"
        return Denial(HTTPStatus.FORBIDDEN, reason)

    def refusal(self) -> Denial | None:
        """Return the denial of a call that comes now, None if it would be accepted."""
        reason = self._lines.full() or self._closed()
        return busy(reason) if reason else None

    @property
    def busy(self) -> bool:
        """Whether a call is about to begin: its handshake is accepted."""
        return bool(self._beginning)

    def begun(self, connection: object) -> None:
        """Release the line of a call that begins, and counts by itself from here on."""
        self._lines.release(connection)
        self._beginning.discard(connection)

    @asynccontextmanager
    async def accepted(
        self,
        websocket: WebSocket,
        subprotocol: str,
        known: bool,
        conversation: str = "",
        owner: str | None = None,
    ) -> AsyncIterator[WebSocketTransport | None]:
        """Accept a WebSocket or refuse it, and yield its connection if the call may begin.

        The call counts for the length of the block. A ProtocolError or Overloaded that the block raises is
        the reason why it does not begin.

        Pages in a browser cannot read the status of a refusal: where the server takes no calls now, theirs is
        accepted, and then closed with the reason. While the models load, so is every call. Behind a balancer,
        which has to see the status, none is.

        subprotocol: chosen if the client offers it. known: whether the client's key is valid, if one is
        needed. conversation: named in the answer, "" for none. owner: the hash of the API key that the call
        counts for, None for that of the client's key. Cancelling leaves the socket to the server, which drops
        it.
        """
        owner = self._keys.owner(shown(websocket.scope)) if owner is None else owner
        denial = self.stranger(websocket)
        if not denial and not known:
            denial = Denial(HTTPStatus.UNAUTHORIZED, self._keys.wrong(shown(websocket.scope)))
        transport = WebSocketTransport(websocket)
        balanced = self._settings.behind_balancer
        reason = "" if denial else self._closed()
        denial = denial or self._by_status(reason, websocket) or self._limits.begin(owner, time.monotonic())
        if denial:
            await denial.send(websocket)
            yield None
            return
        try:
            if balanced and (full := self._lines.take(transport)):
                await busy(full).send(websocket)
                yield None
                return
            self._beginning.add(transport)
            await accept(websocket, subprotocol, conversation)
            if reason:
                await decline(transport, CloseCode.TRY_AGAIN_LATER, reason)
            try:
                yield None if reason else transport
            except ProtocolError as error:
                await decline(transport, CloseCode.POLICY_VIOLATION, str(error))
            except Overloaded as error:
                await decline(transport, CloseCode.TRY_AGAIN_LATER, str(error))
        finally:
            self.begun(transport)
            self._limits.end(owner)

    def _by_status(self, reason: str, websocket: WebSocket) -> Denial | None:
        """Return the denial of a call that is refused for this reason, None where it is accepted first."""
        by_status = self._settings.behind_balancer or (
            reason != TRY_AGAIN and "origin" not in websocket.headers
        )
        return busy(reason) if reason and by_status else None


def busy(reason: str) -> Denial:
    """Return the denial of a call that may be tried again in a moment."""
    return Denial(HTTPStatus.SERVICE_UNAVAILABLE, reason, BUSY_SECONDS)


async def accept(websocket: WebSocket, subprotocol: str, conversation: str) -> None:
    """Accept a WebSocket. subprotocol, conversation: as in ``Admission.accepted``.

    Cancelling leaves the socket to the server, which drops it.
    """
    offered = websocket.scope.get("subprotocols", [])
    headers = [(CONVERSATION.encode(), conversation.encode())] if conversation else []
    await websocket.accept(subprotocol if subprotocol in offered else None, headers)
