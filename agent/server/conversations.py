"""The Realtime calls of a server: they end with it, or by themselves, and not with their sockets."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from starlette.datastructures import QueryParams
from starlette.types import Scope

from rejoinder.agent.server.access import shown
from rejoinder.agent.server.keys import Keys, hashed
from rejoinder.agent.server.limits import Limits
from rejoinder.agent.wires.call import Call
from rejoinder.agent.wires.realtime.call import Ended, RealtimeCall, SocketLease
from rejoinder.agent.wires.realtime.resuming import ResumeRequest

PATH = "/v1/realtime"


@dataclass(frozen=True, slots=True)
class ActiveCall:
    """A call that runs, and who may take it up.

    shown, owner: the hashes of the key or secret that began it, and of the key that it counts for.
    """

    call: RealtimeCall
    shown: str
    owner: str


class Conversations:
    """The calls that run, by the ids of their conversations, and what runs them.

    lines: all calls of the server; these are among them, also while their clients are gone. limits: where a
        call counts for its key as long as it lasts.
    """

    def __init__(self, lines: set[Call], keys: Keys, limits: Limits) -> None:
        self._lines = lines
        self._keys = keys
        self._limits = limits
        self._begun: dict[str, ActiveCall] = {}
        self._tasks: dict[asyncio.Task[None], RealtimeCall] = {}

    def find(self, conversation: str, key: str) -> RealtimeCall | None:
        """Return a conversation that outlives its socket to who began it, None to others.

        That is the same key or secret, even if that has expired since, or another secret of the same key.
        """
        begun = self._begun.get(conversation)
        if begun is None or not begun.call.seconds:
            return None
        same = secrets.compare_digest(begun.shown, hashed(key))
        return begun.call if same or (begun.owner and begun.owner == self._keys.owner(key)) else None

    def goes_on(self, scope: Scope) -> bool:
        """Tell whether a WebSocket wants to go on with a conversation, and may."""
        if scope["path"] != PATH:
            return False
        conversation = QueryParams(scope["query_string"]).get("conversation_id", "")
        return self.find(conversation, shown(scope)) is not None

    async def begin(self, call: RealtimeCall, lease: SocketLease, key: str) -> Ended:
        """Begin a call; return when it is done with its first socket.

        Cancelling leaves the call to itself.
        """
        begun = ActiveCall(call, hashed(key), self._keys.owner(key))
        self._begun[call.conversation] = begun
        self._lines.add(call)
        task = asyncio.create_task(self._run(call), name="call")
        self._tasks[task] = call
        task.add_done_callback(self._tasks.pop)
        try:
            return await lease.ended
        finally:
            if not call.over:  # its socket counted for it so far
                self._limits.hold(begun.owner)
                task.add_done_callback(lambda _: self._limits.end(begun.owner))

    async def resume(self, call: RealtimeCall, lease: SocketLease, request: ResumeRequest) -> Ended:
        """Let a call go on over this socket; return when it is done with it."""
        call.take(lease, request)
        return await lease.ended

    def make_way(self) -> bool:
        """End the call whose client is gone longest, for a caller who is there; return whether there is one.

        Its line is free at once. Its client finds a new conversation if it comes back.
        """
        waiting = [(task, call) for task, call in self._tasks.items() if call.waits and not call.over]
        if not waiting:
            return False
        task, call = min(waiting, key=lambda each: each[1].alone)
        call.feed.reason = "its client was gone, and its line went to another caller"
        call.over = True
        self._forget(call)
        task.cancel()
        return True

    def end_waiting(self) -> None:
        """End the calls whose clients are gone: nobody is told, and who watches them need not wait."""
        for task, call in self._tasks.items():
            if call.waits:
                task.cancel()

    async def aclose(self) -> None:
        """End all calls, and wait until everything that they started is gone."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, call: RealtimeCall) -> None:
        code, reason = 0, ""
        try:
            code, reason = await call.run()
        finally:
            self._forget(call)
            call.end(code, reason)

    def _forget(self, call: RealtimeCall) -> None:
        self._begun.pop(call.conversation, None)
        self._lines.discard(call)
