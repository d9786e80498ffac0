"""The Realtime calls of a server. A call ends by itself or with the server, but not with its socket."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from rejoinder.agent.server.keys import Keys, hashed
from rejoinder.agent.server.limits import Limits
from rejoinder.agent.wires.call import Call
from rejoinder.agent.wires.realtime.resumable_socket import Ended, ResumableSocket, SocketLease


@dataclass(frozen=True, slots=True)
class ActiveCall:
    """A running call, its connection, and the keys with which it may be resumed.

    shown: the hash of the key or secret that began it. owner: the hash of the key that it counts for.
    """

    call: Call
    socket: ResumableSocket
    shown: str
    owner: str


class Conversations:
    """The running calls, by the ids of their conversations, and their tasks.

    lines: all calls of the server. It includes these calls, even while their clients are gone. limits: counts
    each call for its key until the call ends.
    """

    def __init__(self, lines: set[Call], keys: Keys, limits: Limits) -> None:
        self._lines = lines
        self._keys = keys
        self._limits = limits
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
        same = secrets.compare_digest(begun.shown, hashed(key))
        return begun.socket if same or (begun.owner and begun.owner == self._keys.owner(key)) else None

    async def begin(self, call: Call, socket: ResumableSocket, lease: SocketLease, key: str) -> Ended:
        """Begin a call; return when it releases its first socket, which ``lease`` is.

        Cancelling stops waiting and does not end the call.
        """
        begun = ActiveCall(call, socket, hashed(key), self._keys.owner(key))
        self._begun[socket.conversation] = begun
        self._lines.add(call)
        task = asyncio.create_task(self._run(begun), name="call")
        self._tasks[task] = begun
        task.add_done_callback(self._tasks.pop)
        try:
            return await lease.ended
        finally:
            if not socket.over:  # until now the socket was counted; from here on the call is
                self._limits.hold(begun.owner)
                task.add_done_callback(lambda _: self._limits.end(begun.owner))

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
        for task, begun in self._tasks.items():
            if begun.socket.waits:
                task.cancel()

    async def aclose(self) -> None:
        """End all calls, and wait until everything they started is gone. Cancelling stops waiting."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, begun: ActiveCall) -> None:
        code, reason = 0, ""
        try:
            code, reason = await begun.call.run()
        finally:
            self._forget(begun)
            begun.socket.end(code, reason)

    def _forget(self, begun: ActiveCall) -> None:
        self._begun.pop(begun.socket.conversation, None)
        self._lines.discard(begun.call)
