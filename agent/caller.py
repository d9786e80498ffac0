"""A caller over a real WebSocket, in real time: the client's side of any OpenAI Realtime server."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from rejoinder.agent.player import RATE, Microphone, Player
from rejoinder.agent.room import Room
from rejoinder.agent.turns import HeardTurn, Hold, Reply
from rejoinder.pipeline.audio import Samples, to_float
from rejoinder.pipeline.errors import PipelineError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts that are never reached through a proxy, whatever the environment says."""


class CallLost(PipelineError):
    """There is no call, or there is none any more."""


class Caller:
    """One call. Make it with ``open_call``; it speaks and listens by itself until the block ends."""

    def __init__(
        self, socket: ClientConnection, background: Samples | None = None, room: Room | None = None
    ) -> None:
        self.player = Player()
        self.microphone = Microphone(background, partial(room.echo, self.player) if room else None)
        self.turns: list[HeardTurn] = []
        self.replies: list[Reply] = []
        self.holds: list[Hold] = []
        self.errors: list[str] = []
        self._socket = socket
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
        await self._send({"type": "response.create"})

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
            audio = base64.b64encode(self.microphone.frame()).decode("ascii")
            await self._send({"type": "input_audio_buffer.append", "audio": audio})
            self._tick.set()
            self._tick = asyncio.Event()

    async def listen(self) -> None:
        """Take the server's events until the call ends. Raises CallLost."""
        try:
            async for message in self._socket:
                await self._take(json.loads(message))
        except ConnectionClosed as error:
            raise CallLost(f"the server closed the call: {error}") from error
        raise CallLost("the server ended the call")

    async def _send(self, event: dict[str, Any]) -> None:
        try:
            await self._socket.send(json.dumps(event))
        except ConnectionClosed as error:
            raise CallLost(f"the server closed the call: {error}") from error

    async def _take(self, event: dict[str, Any]) -> None:
        # Servers of before the GA version say response.audio.delta.
        match event["type"].replace("response.audio", "response.output_audio"):
            case "input_audio_buffer.speech_started":
                self.turns.append(HeardTurn(event["item_id"], self.now))
                await self._interrupt()
            case "rejoinder.output_paused":
                self.holds.append(Hold(event["item_id"], self.now))
                self.player.hold(self.holds[-1].at)
            case "rejoinder.output_resumed":
                self.holds[-1].until = now = self.now
                self.player.release(now)
            case "input_audio_buffer.speech_stopped":
                self._turn(event["item_id"]).end = event["audio_end_ms"] * RATE // 1000
            case "conversation.item.input_audio_transcription.delta":
                self._turn(event["item_id"]).text += event["delta"]
            case "conversation.item.input_audio_transcription.completed":
                turn = self._turn(event["item_id"])
                turn.text, turn.final = event["transcript"], True
            case "response.created":
                end = self.turns[-1].end if self.turns else None
                self.replies.append(Reply(event["response"]["id"], self.now, heard_end=end))
            case "response.output_audio_transcript.delta":
                reply = self._reply(event)
                reply.write(event["delta"], self.player.received(reply.item))
            case "response.output_audio.delta":
                audio = to_float(base64.b64decode(event["delta"]))
                self.player.play(self._reply(event).item, audio, self.now)
            case "response.done":
                self._reply({"response_id": event["response"]["id"]}).status = event["response"]["status"]
            case "rejoinder.trace":
                reply = self._reply(event)
                reply.parts = [(part["name"], part["ms"]) for part in event["parts"]]
                reply.counts = event.get("counts", {})
            case "error":
                self.errors.append(event["error"]["message"])

    async def _interrupt(self) -> None:
        if (cut := self.player.flush(self.now)) is None:
            return
        for reply in self.replies:
            if reply.item == cut.item:
                reply.cut = cut
        await self._send(
            {
                "type": "conversation.item.truncate",
                "item_id": cut.item,
                "content_index": 0,
                "audio_end_ms": cut.played_ms,
            }
        )

    def _turn(self, item: str) -> HeardTurn:
        for turn in self.turns:
            if turn.item == item:
                return turn
        self.turns.append(HeardTurn(item, self.now))
        return self.turns[-1]

    def _reply(self, event: dict[str, Any]) -> Reply:
        for reply in reversed(self.replies):
            if reply.id == event["response_id"]:
                reply.item = event.get("item_id", reply.item)
                return reply
        self.replies.append(Reply(event["response_id"], self.now, event.get("item_id", "")))
        return self.replies[-1]


@asynccontextmanager
async def open_call(
    url: str, key: str | None = None, background: Samples | None = None, room: Room | None = None
) -> AsyncIterator[Caller]:
    """Call a Realtime server for the length of the block.

    key: sent as a bearer token. background: noise on the caller's line, 24 kHz. room: where
    its loudspeaker is open; without one it wears a headset. A call that cannot be made
    or breaks cancels the block and raises CallLost.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else None
    try:
        # Audio in base64 hardly deflates, and the work would count as the agent's latency.
        async with connect(
            url,
            additional_headers=headers,
            compression=None,
            max_size=None,
            proxy=None if urlsplit(url).hostname in LOOPBACK else True,
        ) as socket:
            caller = Caller(socket, background, room)
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
    except (OSError, TimeoutError, WebSocketException) as error:
        raise CallLost(f"cannot call {url}: {error}") from error
