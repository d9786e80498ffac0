"""Decides which WebSockets become calls, and how the others are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus

from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket
from websockets.frames import CloseCode

from rejoinder.agent.config import Settings
from rejoinder.agent.server.access import decline, may_call, shown
from rejoinder.agent.server.denial import Denial
from rejoinder.agent.server.keys import Keys
from rejoinder.agent.server.limiting.allowance import BUSY_SECONDS
from rejoinder.agent.server.limiting.limiter import Limiter
from rejoinder.agent.server.limiting.shared import UNCHECKED
from rejoinder.agent.server.operating.lines import Lines
from rejoinder.agent.wires.failures import SHUTTING_DOWN
from rejoinder.agent.wires.transport import WebSocketTransport
from rejoinder.pipeline import Overloaded, ProtocolError

TRY_AGAIN = "the models are still loading: try again in a few seconds"
"""The error message while the models still load."""
CONVERSATION = "rejoinder-conversation"
"""The header of an accepted handshake that names the conversation, so that a balancer can note its server."""


class Admission:
    """Accepts WebSockets. keys, limiter: of clients. lines: of the server.

    closed: returns why no new call is taken now, "" if calls are taken.
    """

    def __init__(
        self, settings: Settings, keys: Keys, limiter: Limiter, lines: Lines, closed: Callable[[], str]
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._limiter = limiter
        self._lines = lines
        self._closed = closed
        self._beginning: set[object] = set()

    def welcome(self, origin: str | None, host: str) -> bool:
        """Return whether pages of an origin may call this host."""
        allowed = self._settings.allowed_origins.split()
        return may_call(origin, host, allowed, self._settings.local)

    def owners(self, connection: HTTPConnection, key: str | None = None) -> tuple[str, ...]:
        """Return who a call or request counts for. key: the hash of an API key, None for the client's."""
        key = self._keys.owner(shown(connection.scope)) if key is None else key
        return self._limiter.owners(key, connection.client.host if connection.client else "")

    async def known(self, websocket: WebSocket) -> bool | None:
        """Return whether a client's key is valid, None where that could not be found out.

        A client secret may be another server's. Cancelling stops the wait.
        """
        if self.stranger(websocket):
            return False
        is_sure = await self._limiter.learn(key := shown(websocket.scope))
        return True if self._keys.session(key) is not None else False if is_sure else None

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
        known: bool | None,
        owners: Sequence[str],
        conversation: str = "",
        moved: bool = False,
    ) -> AsyncIterator[WebSocketTransport | None]:
        """Accept a WebSocket or refuse it, and yield its connection if the call may begin.

        The call counts for the length of the block. A ProtocolError or Overloaded that the block raises is
        the reason why it does not begin.

        Pages in a browser cannot read the status of a refusal: where the server takes no calls now, theirs is
        accepted, and then closed with the reason. While the models load, so is every call. Behind a balancer,
        which has to see the status, none is.

        subprotocol: chosen if the client offers it. known: whether the client's key is valid, if one is
        needed; None where that could not be found out. owners: who the call counts for. conversation: named
        in the answer, "" for none. moved: whether it has begun at another server; then no limits apply.
        Cancelling leaves the socket to the server, which drops it.
        """
        transport = WebSocketTransport(websocket)
        denial, reason = self._denial(websocket, known), ""
        if not denial:
            reason = self._closed()
            denial = self._by_status(reason, websocket)
            reason = self._elsewhere(reason) or reason
        if denial:
            await denial.send(websocket)
            yield None
            return
        counted = False
        self._beginning.add(transport)
        try:
            denial = None if moved else self._limiter.refusal(owners)  # before a call makes way for this one
            if not denial and self._settings.behind_balancer and (full := self._lines.take(transport)):
                denial = busy(full)
            if not denial and moved:
                self._limiter.hold(owners)
            elif not denial:
                denial = await self._limiter.begin(owners)
            if denial:
                await denial.send(websocket)
                yield None
                return
            counted = True
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
            if counted:
                self._limiter.end(owners)

    def _denial(self, websocket: WebSocket, known: bool | None) -> Denial | None:
        """Return the denial of a client that may not call. known: as in ``accepted``."""
        if denial := self.stranger(websocket):
            return denial
        if known is None:
            return UNCHECKED
        return None if known else Denial(HTTPStatus.UNAUTHORIZED, self._keys.wrong(shown(websocket.scope)))

    def _by_status(self, reason: str, websocket: WebSocket) -> Denial | None:
        """Return the denial of a call that is refused for this reason, None where it is accepted first."""
        by_status = self._settings.behind_balancer or (
            reason != TRY_AGAIN and "origin" not in websocket.headers
        )
        if not (reason and by_status):
            return None
        if not (moved := self._elsewhere(reason)):
            return busy(reason)
        path = websocket.url.path + (f"?{websocket.url.query}" if websocket.url.query else "")
        return Denial(HTTPStatus.TEMPORARY_REDIRECT, moved, BUSY_SECONDS, self._settings.drain_url + path)

    def _elsewhere(self, reason: str) -> str:
        """Return the reason with the address of the server that takes calls meanwhile, "" without one.

        A balancer asks another server by itself, and would pass the address on to the client.
        """
        url = self._settings.drain_url
        if not url or self._settings.behind_balancer or not reason.startswith(SHUTTING_DOWN):
            return ""
        return f"{SHUTTING_DOWN}: call {url}"


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
