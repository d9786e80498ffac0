"""The Realtime calls of a server. A call ends by itself or with the server, but not with its socket."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from websockets.frames import CloseCode

from rejoinder.agent.server.journal.journal import Found, Journal
from rejoinder.agent.server.journal.recorder import ConversationRecorder
from rejoinder.agent.server.journal.store import WriteRefusal
from rejoinder.agent.server.keys import Keys, hashed
from rejoinder.agent.server.limiting.limiter import Limiter
from rejoinder.agent.wires.call import Call
from rejoinder.agent.wires.failures import SHUTTING_DOWN
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.resumable_socket import Ended, ResumableSocket, SocketLease


@dataclass(frozen=True, slots=True)
class ActiveCall:
    """A running call, its connection, and the keys with which it may be resumed.

    shown: the hash of the key or secret that began it. owner: the hash of the key that it counts for.
    owners: whose limits it counts for. recorder: writes it to a store, None for none.
    """

    call: Call
    socket: ResumableSocket
    shown: str
    owner: str
    owners: Sequence[str]
    recorder: ConversationRecorder | None


class Conversations:
    """The running calls, by the ids of their conversations, and their tasks.

    lines: all calls of the server. It includes these calls, even while their clients are gone. limiter:
    counts each call until it ends. journal: keeps the conversations for other processes, None for none.
    """

    def __init__(
        self, lines: set[Call], keys: Keys, limiter: Limiter, journal: Journal | None = None
    ) -> None:
        self._journal = journal
        if journal:
            journal.taken = self._end_taken
        self._closing = False
        self._lines = lines
        self._keys = keys
        self._limiter = limiter
        self._begun: dict[str, ActiveCall] = {}
        self._tasks: dict[asyncio.Task[None], ActiveCall] = {}

    def find(self, conversation: str, key: str) -> ResumableSocket | None:
        """Return the connection of a conversation that this key may resume, None where there is none.

        A call may be resumed with the key or secret that began it, even an expired one, or with another
        secret of the same key.
        """
        begun = self._begun.get(conversation)
        if begun is None or not begun.socket.seconds:
            return None
        if begun.owner and not self._keys.serves(begun.owner):  # its key was removed
            return None
        same = secrets.compare_digest(begun.shown, hashed(key))
        return begun.socket if same or (begun.owner and begun.owner == self._keys.owner(key)) else None

    async def find_elsewhere(self, conversation: str, key: str) -> Found | None:
        """Return a conversation of another process that this key may resume, None where there is none.

        Cancelling stops the wait.
        """
        if self._journal is None or not conversation:
            return None
        return await self._journal.find(conversation, key, self._keys)

    async def claim(self, found: Found) -> Found | None:
        """Take over a conversation of another process; return it as it is then.

        None where another process was faster. Cancelling stops the wait.
        """
        assert self._journal is not None
        return await self._journal.claim(found)

    def drop(self, found: Found) -> None:
        """End a conversation that was claimed and cannot go on."""
        assert self._journal is not None
        self._journal.drop(found)

    def record(
        self, wire: Realtime, key: str, query: Mapping[str, str], found: Found | None
    ) -> ConversationRecorder | None:
        """Return the recorder of a call that begins, None without a journal.

        key: that the client presents. query: of the request that began the conversation. found: what
        ``claim`` returned, None for a new one.
        """
        if self._journal is None:
            return None
        if found:
            return self._journal.record(wire, found.about, found.generation)
        about = {"shown": hashed(key), "owner": self._keys.owner(key), "query": dict(query)}
        return self._journal.record(wire, about)

    async def begin(self, begun: ActiveCall, lease: SocketLease) -> Ended:
        """Begin a call; return when it releases its first socket, which ``lease`` is.

        Cancelling stops waiting and does not end the call.
        """
        self._begun[begun.socket.conversation] = begun
        self._lines.add(begun.call)
        task = asyncio.create_task(self._run(begun), name="call")
        self._tasks[task] = begun
        task.add_done_callback(self._tasks.pop)
        try:
            return await lease.ended
        finally:
            if not begun.socket.over:  # until now the socket was counted; from here on the call is
                self._limiter.hold(begun.owners)
                task.add_done_callback(lambda _: self._limiter.end(begun.owners))

    def make_way(self) -> bool:
        """End the call whose client has been gone longest, to free its line; return whether there was one.

        The line is free at once. If the client comes back, it gets a new conversation.
        """
        begun = self._tasks.items()
        waiting = [(task, one) for task, one in begun if one.socket.waits and not one.socket.over]
        if not waiting:
            return False
        task, oldest = min(waiting, key=lambda each: each[1].socket.alone)
        oldest.call.feed.reason = "its client was gone, and its line went to another caller"
        oldest.socket.over = True
        self._forget(oldest)
        task.cancel()
        return True

    def end_waiting(self) -> None:
        """End the calls whose clients are gone, so that their watchers' streams end on shutdown."""
        self._closing = True
        for task, begun in self._tasks.items():
            if begun.socket.waits:
                task.cancel()

    async def aclose(self) -> None:
        """End all calls, and wait until everything they started is gone. Cancelling stops waiting.

        They stay in the journal: their clients may go on elsewhere.
        """
        self._closing = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, begun: ActiveCall) -> None:
        code, reason = 0, ""
        try:
            code, reason = await begun.call.run()
        finally:
            if self._journal and begun.recorder:
                cut_off = self._closing and begun.call.feed.reason == SHUTTING_DOWN
                self._journal.end(begun.recorder, keep=cut_off)
            self._forget(begun)
            begun.socket.end(code, reason)

    def _end_taken(self, recorder: ConversationRecorder) -> None:
        """End a call whose conversation goes on at another server."""
        for task, begun in self._tasks.items():
            if begun.recorder is recorder:
                begun.call.feed.reason = WriteRefusal.TAKEN.value
                begun.socket.end(CloseCode.NORMAL_CLOSURE, WriteRefusal.TAKEN.value)
                task.cancel()

    def _forget(self, begun: ActiveCall) -> None:
        self._begun.pop(begun.socket.conversation, None)
        self._lines.discard(begun.call)
