"""The Realtime calls of a server. A call ends by itself or with the server, but not with its socket."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import QueryParams
from starlette.types import Scope
from starlette.websockets import WebSocket

from rejoinder.agent.server.access import route, shown
from rejoinder.agent.server.journal.journal import Found, Journal
from rejoinder.agent.server.journal.recorder import ConversationRecorder
from rejoinder.agent.server.journal.store import WriteRefusal
from rejoinder.agent.server.keys import Keys, hashed
from rejoinder.agent.server.limiting.admission import CallAdmission
from rejoinder.agent.wires import call_log
from rejoinder.agent.wires.call import WireCall
from rejoinder.agent.wires.observer import CallObserver
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.resumable_socket import (
    JUST_ENDED,
    Ended,
    ResumableSocket,
    SocketLease,
)
from rejoinder.agent.wires.realtime.resuming import ResumeRequest
from rejoinder.agent.wires.socket import NORMAL, hang_up

PATH = "/v1/realtime"
"""The only path whose conversations can be resumed."""


@dataclass(frozen=True, slots=True)
class ActiveCall:
    """A running call, its connection, and the keys with which it may be resumed.

    shown: the hash of the key or secret that began it. owner: the hash of the key that it counts for.
    recorder: writes it to a store, None for none.
    """

    call: WireCall
    socket: ResumableSocket
    shown: str
    owner: str
    recorder: ConversationRecorder | None


class Conversations:
    """The running calls, by the ids of their conversations, and their tasks.

    lines: all calls of the server. It includes these calls, even while their clients are gone. admission:
    counts each call for its key and for the address that began it, until the call ends. journal: keeps the
    conversations for other processes, None for no journal.
    """

    def __init__(
        self,
        lines: set[WireCall],
        keys: Keys,
        admission: CallAdmission,
        journal: Journal | None = None,
    ) -> None:
        self.journal = journal
        if journal:
            journal.taken = self._end_taken
        self._closing = False
        self._lines = lines
        self._keys = keys
        self._admission = admission
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

    def goes_on(self, scope: Scope) -> bool:
        """Return whether a WebSocket asks to resume a conversation and may."""
        if route(scope) != PATH:
            return False
        conversation = QueryParams(scope["query_string"]).get("conversation_id", "")
        return self.find(conversation, shown(scope)) is not None

    async def find_elsewhere(self, conversation: str, key: str) -> Found | None:
        """Return a conversation of another process that this key may resume, None where there is none.

        Cancelling stops the wait.
        """
        if self.journal is None or not conversation:
            return None
        return await self.journal.find(conversation, key, self._keys)

    async def claim(self, found: Found) -> Found | None:
        """Take over a conversation of another process; return it as it is then.

        None where another process was faster. Cancelling stops the wait.
        """
        assert self.journal is not None
        return await self.journal.claim(found)

    def record(
        self,
        wire: Realtime,
        observer: CallObserver,
        key: str,
        owner: str,
        query: Mapping[str, str],
        found: Found | None,
    ) -> ConversationRecorder | None:
        """Return the recorder of a call that begins, None without a journal.

        key, owner: as for ``begin``. query: of the request that began the conversation. found: what ``claim``
        returned, None for a new one.
        """
        if self.journal is None:
            return None
        if found and found.is_of(wire):
            return self.journal.record(wire, observer, found.about, found.generation)
        about = {"shown": hashed(key), "owner": owner, "query": dict(query)}
        return self.journal.record(wire, observer, about)

    async def begin(
        self,
        call: WireCall,
        socket: ResumableSocket,
        lease: SocketLease,
        key: str,
        owner: str,
        address: str,
        recorder: ConversationRecorder | None = None,
    ) -> Ended:
        """Begin a call; return when it releases its first socket, which ``lease`` is.

        key: that the client presents. owner: the hash of the API key that the call counts for, "" for none.
        address: the client's, as it is counted. recorder: as in ``ActiveCall``. Cancelling stops waiting and
        does not end the call.
        """
        begun = ActiveCall(call, socket, hashed(key), owner, recorder)
        self._begun[socket.conversation] = begun
        self._lines.add(call)
        task = asyncio.create_task(self._run(begun), name="call")
        self._tasks[task] = begun
        task.add_done_callback(self._tasks.pop)
        try:
            return await lease.ended
        finally:
            if not socket.over:  # until now the socket was counted; from here on the call is
                self._admission.count_detached(begun.owner, address)
                task.add_done_callback(lambda _: self._admission.end(begun.owner, address))

    def absent(self) -> list[tuple[asyncio.Task[None], ActiveCall]]:
        """Return the calls whose clients are gone, with their tasks."""
        return [(task, one) for task, one in self._tasks.items() if one.socket.waits and not one.socket.over]

    def make_way(self) -> None:
        """End the call whose client has been gone longest, to free its line. There has to be one.

        The line is free at once. If the client comes back, it gets a new conversation.
        """
        task, oldest = min(self.absent(), key=lambda each: each[1].socket.alone)
        oldest.call.feed.reason = "its client was gone, and its line went to another caller"
        oldest.socket.end(*JUST_ENDED)
        self._forget(oldest)
        task.cancel()

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
            if self.journal and begun.recorder:
                self.journal.end(begun.recorder, keep=self._closing)
            self._forget(begun)
            begun.socket.end(code, reason)

    def _end_taken(self, recorder: ConversationRecorder) -> None:
        """End a call whose conversation goes on at another server."""
        for task, begun in self._tasks.items():
            if begun.recorder is recorder:
                begun.call.feed.reason = WriteRefusal.TAKEN.value
                begun.socket.end(NORMAL, WriteRefusal.TAKEN.value)
                task.cancel()

    def _forget(self, begun: ActiveCall) -> None:
        self._begun.pop(begun.socket.conversation, None)
        self._lines.discard(begun.call)


async def resume(websocket: WebSocket, known: ResumableSocket, request: ResumeRequest) -> None:
    """Run the next socket of a call of this process, until the call releases it.

    Cancelling ends the socket, and the call waits for another one.
    """
    known.take(lease := SocketLease(websocket), request)
    ended = await lease.ended
    if ended == JUST_ENDED:
        call_log.refused(websocket.url.path, websocket.client, ended[1])
    await hang_up(websocket, *ended)
