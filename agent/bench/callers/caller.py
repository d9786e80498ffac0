"""A caller over a real WebSocket, in real time: the client's side of any OpenAI Realtime server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rejoinder.agent.bench.callers.room import Room
from rejoinder.agent.bench.callers.timed_caller import TimedCaller
from rejoinder.agent.bench.callers.turns import HeardReply, HeardTurn, Hold
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.client.call import Call, connect
from rejoinder.agent.client.events import (
    AgentAudio,
    AgentDelta,
    CallEvent,
    Failed,
    Other,
    OutputPaused,
    OutputResumed,
    ReplyDone,
    ReplyStarted,
    SpeechStarted,
    SpeechStopped,
    UserDelta,
    UserSaid,
)
from rejoinder.agent.client.socket import CallLost
from rejoinder.pipeline.audio.chunk import Samples, to_float


class LiveCaller(TimedCaller):
    """One call, from ``open_call``. It sends and receives by itself until the block ends."""

    def __init__(self, call: Call, background: Samples | None = None, room: Room | None = None) -> None:
        super().__init__(background, room)
        self.turns: list[HeardTurn] = []
        self.replies: list[HeardReply] = []
        self.holds: list[Hold] = []
        self.errors: list[str] = []
        self._call = call

    async def ask(self) -> None:
        """Request a reply without a user turn. Cancelling may leave the request unsent. Raises CallLost."""
        await self._call.respond()

    async def stop(self) -> None:
        """Stop the reply in progress, if there is one. Raises CallLost.

        Cancelling may leave the request, or the report of what was played, unsent.
        """
        if any(not reply.status for reply in self.replies):
            await self._call.cancel()
        await self._interrupt()

    def answer(self, end: int) -> HeardReply | None:
        """Return the first reply that was created after sample ``end`` of the call and is audible."""
        for reply in self.replies:
            if reply.created >= end and self.player.first_audible(reply.item) is not None:
                return reply
        return None

    def heard(self, reply: HeardReply) -> str:
        """Return the words of a reply that have been played so far."""
        received = self.player.received(reply.item) + (reply.cut.unheard if reply.cut else 0)
        return reply.heard(self.player.played(reply.item, self.now), received)

    async def speak(self) -> None:
        """Send each frame of the microphone when it is complete, until cancelled. Raises CallLost."""
        while True:
            await asyncio.sleep(self._began + self.microphone.due() - self._loop.time())
            await self._call.send_audio(self.microphone.frame())
            self._frame_sent()

    async def listen(self) -> None:
        """Handle the server's events until the call ends. Raises CallLost.

        Cancelling leaves the call open; the report on an interruption may be unsent.
        """
        async for event in self._call:
            await self._take(event)
        raise CallLost(self._call.over)

    async def _take(self, event: CallEvent) -> None:
        match event:
            case SpeechStarted(item):
                self.turns.append(HeardTurn(item, self.now))
                await self._interrupt()
            case OutputPaused(item):
                self.holds.append(Hold(item or "", self.now))
                self.player.hold(self.holds[-1].at)
            case OutputResumed():
                self.holds[-1].until = now = self.now
                self.player.release(now)
            case SpeechStopped(item, at_ms):
                self._turn(item).end = at_ms * CLIENT_RATE // 1000
            case UserDelta(item, text):
                self._turn(item).text += text
            case UserSaid(item, text):
                turn = self._turn(item)
                turn.text, turn.final = text, True
            case ReplyStarted(id_):
                end = self.turns[-1].end if self.turns else None
                self.replies.append(HeardReply(id_, self.now, heard_end=end))
            case AgentDelta(id_, item, text):
                reply = self._reply(id_, item)
                reply.write(text, self.player.received(reply.item))
            case AgentAudio(id_, item, pcm):
                self.player.play(self._reply(id_, item).item, to_float(pcm), self.now)
            case ReplyDone(id_, status):
                self._reply(id_).status = status
            case Other("rejoinder.trace", raw):
                reply = self._reply(raw["response_id"])
                reply.parts = [(part["name"], part["ms"]) for part in raw["parts"]]
                reply.counts, reply.models = raw.get("counts", {}), raw.get("models", [])
            case Failed(message):
                self.errors.append(message)

    async def _interrupt(self) -> None:
        if (cut := self.player.flush(self.now)) is None:
            return
        for reply in self.replies:
            if reply.item == cut.item:
                reply.cut = cut
        await self._call.truncate(cut.item, cut.played_ms)

    def _turn(self, item: str) -> HeardTurn:
        for turn in self.turns:
            if turn.item == item:
                return turn
        self.turns.append(HeardTurn(item, self.now))
        return self.turns[-1]

    def _reply(self, id_: str, item: str = "") -> HeardReply:
        for reply in reversed(self.replies):
            if reply.id == id_:
                reply.item = item or reply.item
                return reply
        self.replies.append(HeardReply(id_, self.now, item))
        return self.replies[-1]


@asynccontextmanager
async def open_call(
    url: str, key: str | None = None, background: Samples | None = None, room: Room | None = None
) -> AsyncIterator[LiveCaller]:
    """Call a Realtime server while the block runs. Cancelling hangs up.

    key: sent as a bearer token. background: noise on the caller's line, float32 of shape (n,) at 24 kHz.
    room: of a caller with an open loudspeaker; None for a headset. If the call cannot begin or is lost, the
    block is cancelled and CallLost is raised: this caller does not reconnect.
    """
    try:
        async with connect(url, key, reconnect_s=0.0) as call:
            caller = LiveCaller(call, background, room)
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(caller.speak()), tasks.create_task(caller.listen())]
                try:
                    yield caller
                finally:
                    for task in running:
                        task.cancel()
    except BaseExceptionGroup as group:
        lost, others = group.split(CallLost)
        raise (others or lost or group).exceptions[0] from group
