"""A call of the Realtime protocol.

It outlives its sockets: when one breaks off, the call waits for its client.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from contextlib import suppress
from io import RawIOBase
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from rejoinder.agent.wires.call import Call, Message
from rejoinder.agent.wires.realtime.events import failure
from rejoinder.agent.wires.realtime.outbox import Outbox
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.resuming import ResumeRequest, catch_up
from rejoinder.agent.wires.socket import (
    ABNORMAL,
    ALIVE,
    GOING_AWAY,
    NORMAL,
    POLICY_VIOLATION,
    TRY_AGAIN_LATER,
)
from rejoinder.pipeline import RATE, CallOver, Models, Options, Overloaded, ProtocolError, Session

KEEPALIVE_FAILED = 1011
"""Close code of a client whose keepalive ping got no answer."""
SEEMS_DEAD = 4000
"""Close code of a page that receives nothing any more. Browsers cannot send 1011."""
BROKEN = frozenset((ABNORMAL, KEEPALIVE_FAILED, SEEMS_DEAD))
"""Close codes that mean a broken connection, and not that the client has ended the call."""
SILENCE_SECONDS = 0.1
"""Length of the pieces of silence that the session gets while the client is away."""

JUST_ENDED = (TRY_AGAIN_LATER, "the conversation has just ended: connect again")
"""Close code and reason for a client that resumes a call as it ends."""

Ended = tuple[int, str]
"""The code and the reason with which to close a socket; code 0: it is already closed."""


class SocketLease:
    """A socket that a call may use until ``ended`` has a result."""

    def __init__(self, socket: WebSocket) -> None:
        self.socket = socket
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Ended] = loop.create_future()
        self._began = loop.time()

    @property
    def alive(self) -> float:
        """The loop time at which the client last sent anything, such as a pong."""
        return float(self.socket.scope.get(ALIVE, self._began))

    def release(self, code: int, reason: str) -> None:
        """Return the socket to its endpoint, which closes it with this code and reason."""
        if not self.ended.done():
            self.ended.set_result((code, reason))


class RealtimeCall(Call):
    """A call whose client may come back over another socket.

    seconds: how long the call waits for its client, 0 for not at all. over: whether the call has ended.
    alone: the loop time at which its last socket was lost.
    """

    def __init__(
        self,
        lease: SocketLease,
        models: Models,
        options: Options,
        wire: Realtime,
        traces: RawIOBase | None,
        seconds: float = 0.0,
        caller: str = "",
    ) -> None:
        super().__init__(lease.socket, models, options, wire, traces, caller)
        self.over = False
        self.alone = 0.0
        self.conversation = wire.conversation
        self._realtime = wire
        self._max_call_s = options.max_call_s
        self.seconds = seconds
        self._outbox = Outbox()
        self._lease = lease
        self._next: tuple[SocketLease, ResumeRequest] | None = None
        self._arrived = asyncio.Event()
        self._dropped = False
        self._patience: asyncio.Timeout | None = None

    @property
    def waits(self) -> bool:
        """Whether the client is gone and has not come back."""
        return self._dropped and self._next is None

    def take(self, lease: SocketLease, request: ResumeRequest) -> None:
        """Go on over this socket, and release the one before.

        A call that is over releases this socket at once.
        """
        if self.over:
            lease.release(*JUST_ENDED)
            return
        elsewhere = "the conversation goes on over another socket"
        if self._next is not None:
            self._next[0].release(NORMAL, elsewhere)
        self._next = lease, request
        self._arrived.set()
        self._drop(NORMAL, elsewhere)

    def end(self, code: int, reason: str) -> None:
        """Mark the call as over, and release all its sockets."""
        self.over = True
        self._lease.release(code, reason)
        if self._next is not None:
            self._next[0].release(*JUST_ENDED)

    # --- one socket after the other ---------------------------------------------------------------------

    async def _read(self, session: Session) -> int:
        while True:
            code = await super()._read(session)
            if self._next is None and (code not in BROKEN or not self._is_worth_waiting(session)):
                return code
            self._drop(0, "")
            self.feed.reason = ""  # of the lost socket; the call goes on
            heard = session.hold(self._lease.alive)
            if self._next is None:
                self.log.lose("it broke off" if code == ABNORMAL else f"closed with {code}", self.seconds)
            if not await self._wait(session):
                self.feed.reason = f"the client has not come back within {self.seconds:g} s"
                return code
            await self._go_on(session, heard)

    def _is_worth_waiting(self, session: Session) -> bool:
        """Return whether the conversation has anything that a client could come back for."""
        return bool(self.seconds) and not (self._realtime.empty and session.at_rest)

    def _drop(self, code: int, reason: str) -> None:
        """Stop reading and writing the socket at once, and release it."""
        self._dropped = True
        self.alone = asyncio.get_running_loop().time()
        self._lease.release(code, reason)
        for patience in (self._patience, self._sending):
            if patience is not None:
                with suppress(RuntimeError):  # the timeout has just expired
                    patience.reschedule(0.0)
        self._patience = self._sending = None

    async def _wait(self, session: Session) -> bool:
        """Wait for the next socket; return whether one came in time."""
        arrived = asyncio.create_task(self._arrived.wait())
        try:
            async with asyncio.timeout(self.seconds):
                while not self._arrived.is_set():
                    if session.user_has_floor:  # missing audio counts as silence, which ends the user's turn
                        await session.hear(bytes(2 * int(SILENCE_SECONDS * RATE)))
                    await asyncio.wait([arrived], timeout=SILENCE_SECONDS)
        except TimeoutError:
            return False
        finally:
            arrived.cancel()
        return True

    async def _go_on(self, session: Session, heard: tuple[int, float] | None) -> None:
        """Send the client the events that it missed, before any others, and resume the reply."""
        assert self._next is not None
        async with self._writing:
            (self._lease, request), self._next = self._next, None
            self._websocket, self._dropped = self._lease.socket, False
            self.log.come_back(self._lease.socket.client)
            self._arrived.clear()
            missed = catch_up(self._realtime, self._outbox, request, heard)
            session.release(missed.unheard)
            for message in missed.messages:
                await self._put(message)
                await asyncio.sleep(0)  # let other calls run in between

    async def _receive(self) -> MutableMapping[str, Any]:
        if self._dropped:
            return {"type": "websocket.disconnect", "code": ABNORMAL}
        try:
            async with asyncio.timeout(None) as self._patience:
                return await super()._receive()
        except TimeoutError:
            return {"type": "websocket.disconnect", "code": ABNORMAL}
        finally:
            self._patience = None

    async def _write(self, message: Message) -> None:
        assert isinstance(message, dict)
        await self._put(self._outbox.note(message))

    async def _put(self, text: str) -> None:
        if self._dropped:
            return
        try:
            await super()._write(text)
        except Overloaded as error:
            if not self.seconds:
                raise
            if not self._dropped:  # and no other socket has taken over already
                self.log.lose(str(error), self.seconds)
                self._drop(POLICY_VIOLATION, str(error))
        except WebSocketDisconnect:
            if not self.seconds:
                raise
            # The reading side learns the close code: the client may have ended the call.

    async def _over(self, cause: CallOver) -> Ended:
        """Send OpenAI's error for a call that reached its limit: clients look for its code."""
        minutes, seconds = divmod(self._max_call_s, 60.0)
        lasted = f"{self._max_call_s:g} seconds" if seconds else f"{minutes:g} minutes"
        reason = f"Your session hit the maximum duration of {lasted}."
        try:
            await self._send([failure(ProtocolError(reason, "session_expired"), None)])
        except (Overloaded, WebSocketDisconnect):
            return 0, ""
        return GOING_AWAY, reason
