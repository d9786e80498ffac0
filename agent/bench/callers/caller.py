"""A caller over a real WebSocket, in real time: the client's side of any OpenAI Realtime server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from rejoinder.agent.bench.callers.room import Room
from rejoinder.agent.bench.callers.turns import HeardTurn, Hold, Reply
from rejoinder.agent.client.client import Call, CallLost, connect
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
from rejoinder.agent.client.player import RATE, Microphone, Player
from rejoinder.pipeline.audio.chunk import Samples, to_float


class Caller:
    """One call. Make it with ``open_call``; it speaks and listens by itself until the block ends."""

    def __init__(self, call: Call, background: Samples | None = None, room: Room | None = None) -> None:
        self.player = Player()
        self.microphone = Microphone(background, partial(room.echo, self.player) if room else None)
        self.turns: list[HeardTurn] = []
        self.replies: list[Reply] = []
        self.holds: list[Hold] = []
        self.errors: list[str] = []
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._tick = asyncio.Event()

    @property
    def now(self) -> int:
        """Samples since the call began, by the clock."""
        return int((self._loop.time() - self._began) * RATE)

    def say(self, audio: Samples) -> int:
        """Say something, 24 kHz; return the sample of the call at which it begins."""
        return self.microphone.say(audio)

    async def ask(self) -> None:
        """Let the agent speak unasked."""
        await self._call.respond()

    async def stop(self) -> None:
        """Let the agent say no more of what it says, if it does. Raises CallLost."""
        if any(not reply.status for reply in self.replies):
            await self._call.cancel()
        await self._interrupt()

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds, looking once a frame; return False if it never did."""
        deadline = self._loop.time() + seconds
        while not condition():
            if self._loop.time() > deadline:
                return False
            await self._tick.wait()
        return True

    def answer(self, end: int) -> Reply | None:
        """Return the first reply that was created after sample ``end`` of the call and can be heard."""
        for reply in self.replies:
            if reply.created >= end and self.player.first_audible(reply.item) is not None:
                return reply
        return None

    def heard(self, reply: Reply) -> str:
        """Return the words of a reply that have been heard by now."""
        received = self.player.received(reply.item) + (reply.cut.unheard if reply.cut else 0)
        return reply.heard(self.player.played(reply.item, self.now), received)

    def tracks(self) -> tuple[Samples, Samples]:
        """Return what was said and what was heard so far, aligned to the sample."""
        said = self.microphone.track()
        return said, self.player.track(len(said))

    async def speak(self) -> None:
        """Send the microphone's frames, each as soon as its last sample is recorded. Raises CallLost."""
        while True:
            await asyncio.sleep(self._began + self.microphone.due() - self._loop.time())
            await self._call.send_audio(self.microphone.frame())
            self._tick.set()
            self._tick = asyncio.Event()

    async def listen(self) -> None:
        """Take the server's events until the call ends. Raises CallLost."""
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
                self._turn(item).end = at_ms * RATE // 1000
            case UserDelta(item, text):
                self._turn(item).text += text
            case UserSaid(item, text):
                turn = self._turn(item)
                turn.text, turn.final = text, True
            case ReplyStarted(id_):
                end = self.turns[-1].end if self.turns else None
                self.replies.append(Reply(id_, self.now, heard_end=end))
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
                reply.counts = raw.get("counts", {})
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

    def _reply(self, id_: str, item: str = "") -> Reply:
        for reply in reversed(self.replies):
            if reply.id == id_:
                reply.item = item or reply.item
                return reply
        self.replies.append(Reply(id_, self.now, item))
        return self.replies[-1]


@asynccontextmanager
async def open_call(
    url: str, key: str | None = None, background: Samples | None = None, room: Room | None = None
) -> AsyncIterator[Caller]:
    """Call a Realtime server for the length of the block.

    key: sent as a bearer token. background: noise on the caller's line, 24 kHz. room: where
    its loudspeaker is open; without one it wears a headset. A call that cannot be made
    or breaks cancels the block and raises CallLost: nothing here comes back.
    """
    try:
        async with connect(url, key, reconnect_s=0.0) as call:
            caller = Caller(call, background, room)
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
