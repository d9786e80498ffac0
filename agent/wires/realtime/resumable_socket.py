"""The connection of a Realtime call, over one socket after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from websockets.frames import CloseCode

from rejoinder.agent.wires.realtime.outbox import Outbox
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.resuming import ResumeRequest, catch_up
from rejoinder.agent.wires.socket import ClientAway, ConnectionChange, Gone, Lost, Resumed
from rejoinder.agent.wires.transport import Disconnected, Frame, Message, Unsent, WebSocketTransport
from rejoinder.pipeline import Overloaded

SEEMS_DEAD = 4000
"""Close code of a page that receives nothing any more. Browsers cannot send 1011."""
BROKEN_OFF = frozenset((CloseCode.ABNORMAL_CLOSURE, CloseCode.INTERNAL_ERROR, SEEMS_DEAD))
"""Close codes that mean a broken connection, and not that the client has ended the call. 1011 is that of a
client whose keepalive ping got no answer."""
CONFIRMATIONS = frozenset(
    (
        *("conversation.item.added", "conversation.item.done", "conversation.item.deleted"),
        *("conversation.item.truncated", "session.updated"),
        *("response.created", "response.output_item.done", "response.done"),
    )
)
"""Types of events after which the client relies on a change."""
AWAY_SECONDS = 0.1
"""Interval between two ``ClientAway`` while the client is away, in seconds."""

JUST_ENDED = (CloseCode.TRY_AGAIN_LATER, "the conversation has just ended: connect again")
"""Close code and reason for a client that comes back too late."""

Ended = tuple[int, str]
"""The code and the reason with which to close a socket; code 0: it is already closed."""


class Recorder(Protocol):
    """Writes the conversation to a store."""

    def changed(self) -> None:
        """Record that the conversation has changed."""

    async def written(self) -> None:
        """Wait until the change is in the store, or the store is late. Cancelling stops waiting."""


class SocketLease:
    """A socket that a call may use until ``ended`` has a result."""

    def __init__(self, transport: WebSocketTransport) -> None:
        self.transport = transport
        self.ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    def release(self, code: int, reason: str) -> None:
        """Return the socket to its endpoint, which closes it with this code and reason."""
        if not self.ended.done():
            self.ended.set_result((code, reason))


class ResumableSocket:
    """A ``CallSocket`` whose client may come back over another socket.

    lease: the first socket. wire: the protocol of the call. seconds: how long to wait for the client, 0 for
    not at all. over: whether the call has ended. alone: the loop time at which the last socket was lost.
    recorder: writes the conversation to a store, None for none. What a client learns of its items is in the
    store before.
    """

    def __init__(
        self, lease: SocketLease, wire: Realtime, seconds: float = 0.0, recorder: Recorder | None = None
    ) -> None:
        self._recorder = recorder
        self.over = False
        self.alone = 0.0
        self.seconds = seconds
        self.conversation = wire.conversation
        self._wire = wire
        self._lease = lease
        self._outbox = Outbox()
        self._writing = asyncio.Lock()
        self._next: tuple[SocketLease, ResumeRequest] | None = None
        self._arrived = asyncio.Event()
        self._dropped = False
        self._unread = ""
        self._lost = False
        self._until: float | None = None
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
            self._next[0].release(CloseCode.NORMAL_CLOSURE, elsewhere)
        self._next = lease, request
        self._arrived.set()
        self._drop(CloseCode.NORMAL_CLOSURE, elsewhere)

    def end(self, code: int, reason: str) -> None:
        """Mark the call as over, and release all its sockets."""
        self.over = True
        self._lease.release(code, reason)
        if self._next is not None:
            self._next[0].release(*JUST_ENDED)

    # --- reading ----------------------------------------------------------------------------------------

    async def receive(self) -> list[Frame] | Disconnected | ConnectionChange:
        """Return the next frames of the client, or a change of its connection.

        After ``Lost`` the next call begins to wait for the client: a call that ends instead does not make it.
        Cancelling loses no frame.
        """
        if self._lost:
            return await self._wait()
        came: list[Frame] | Disconnected = Disconnected(CloseCode.ABNORMAL_CLOSURE)
        if not self._dropped:
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as self._patience:
                    came = await self._lease.transport.receive()
            self._patience = None
        return self._disconnected(came) if isinstance(came, Disconnected) else came

    def _disconnected(self, end: Disconnected) -> Disconnected | Lost:
        replaced = self._next is not None
        if not replaced and (end.code not in BROKEN_OFF or not self.seconds):
            return end
        self._lost = True
        broke_off = end.code == CloseCode.ABNORMAL_CLOSURE
        broken = "" if replaced else "it broke off" if broke_off else f"closed with {end.code}"
        empty = self._wire.empty and not replaced
        return Lost(end, self._lease.transport.alive, self._unread or broken, self.seconds, empty)

    async def _wait(self) -> ConnectionChange:
        """Wait for the next socket, for ``AWAY_SECONDS`` at most; after ``Lost`` not at all."""
        loop = asyncio.get_running_loop()
        if self._until is None:
            self._drop(0, "")
            self._until = loop.time() + self.seconds
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(AWAY_SECONDS, self._until - loop.time())):
                    await self._arrived.wait()
        if self._next is not None:
            return Resumed(self._next[0].transport.client, self._catch_up)
        if loop.time() >= self._until:
            return Gone(f"the client has not come back within {self.seconds:g} s")
        return ClientAway(AWAY_SECONDS)

    # --- writing ----------------------------------------------------------------------------------------

    async def send(self, messages: Sequence[Message]) -> None:
        """Send events, in order, with no others between them.

        A client that resumes gets those it missed. Cancelling may leave some unsent. Raises Overloaded and
        Unsent if the call does not wait for its client.
        """
        async with self._writing:
            if self._recorder and any(map(_confirms, messages)):
                self._recorder.changed()
                await self._recorder.written()
            for message in messages:
                assert isinstance(message, dict)
                await self._put(self._outbox.note(message))

    async def _catch_up(
        self, heard: tuple[int, float] | None, release: Callable[[Mapping[int, float]], None]
    ) -> None:
        """Go on over the next socket, and send the client what it missed; see ``Resumed``."""
        async with self._writing:
            assert self._next is not None
            (self._lease, request), self._next = self._next, None
            self._arrived.clear()
            self._dropped = self._lost = False
            self._unread, self._until = "", None
            missed = catch_up(self._wire, self._outbox, request, heard)
            release(missed.unheard)
            for text in missed.messages:
                await self._put(text)
                await asyncio.sleep(0)  # let other calls run in between

    async def _put(self, text: str) -> None:
        if self._dropped:
            return
        try:
            await self._lease.transport.write(text)
        except Overloaded as error:
            if not self.seconds:
                raise
            if not self._dropped:  # and no other socket has taken over already
                self._unread = str(error)
                self._drop(CloseCode.POLICY_VIOLATION, str(error))
        except Unsent:
            if not self.seconds:
                raise
            # The reading side learns the close code: the client may have ended the call.

    def _drop(self, code: int, reason: str) -> None:
        """Stop reading and writing the socket at once, and release it."""
        self._dropped = True
        self.alone = asyncio.get_running_loop().time()
        self._lease.release(code, reason)
        self._lease.transport.stop()
        if self._patience is not None:
            with suppress(RuntimeError):  # the timeout has just expired
                self._patience.reschedule(0.0)
            self._patience = None


def _confirms(message: Message) -> bool:
    """Return whether the client relies on a change after this event; not on an item that has just begun."""
    assert isinstance(message, dict)
    begun = message["type"] == "conversation.item.added" and message["item"]["status"] == "in_progress"
    return message["type"] in CONFIRMATIONS and not begun
