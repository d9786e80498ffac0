"""A caller on a simulated telephone: Twilio's media stream over a real socket, in real time.

Written after twilio.com/docs/voice/media-streams/websocket-messages.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from rejoinder.agent.bench.callers.timed_caller import TimedCaller
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.client.socket import CallLost
from rejoinder.agent.wires.g711 import decode, encode
from rejoinder.agent.wires.realtime.formats import TELEPHONE_RATE
from rejoinder.agent.wires.resampler import Resampler
from rejoinder.pipeline.audio.chunk import Samples, to_float

STREAM = "MZ00000000000000000000000000000000"
"""Name of the stream."""


class TelephoneCaller(TimedCaller):
    """One call, from ``open_telephone``. It sends and receives by itself until the block ends."""

    def __init__(self, socket: ClientConnection, background: Samples | None) -> None:
        super().__init__(background)
        self._socket = socket
        self._out = Resampler(CLIENT_RATE, TELEPHONE_RATE)
        self._in = Resampler(TELEPHONE_RATE, CLIENT_RATE)
        self._marks: deque[tuple[int, str]] = deque()
        self._sent = self._clears = 0

    async def speak(self) -> None:
        """Send each frame of the microphone, and the marks that were played, until cancelled.

        Raises CallLost.
        """
        try:
            form = {"encoding": "audio/x-mulaw", "sampleRate": TELEPHONE_RATE, "channels": 1}
            start = {"streamSid": STREAM, "callSid": "CA0", "accountSid": "AC0", "mediaFormat": form}
            await self._send("start", start=start)
            while True:
                await asyncio.sleep(self._began + self.microphone.due() - self._loop.time())
                payload = encode(self._out.feed(self.microphone.frame()), "mulaw")
                self._sent += 1
                media = {"track": "inbound", "chunk": str(self._sent), "timestamp": str(20 * self._sent)}
                await self._send("media", media={**media, "payload": base64.b64encode(payload).decode()})
                while self._marks and self._marks[0][0] <= self.now:
                    await self._send("mark", mark={"name": self._marks.popleft()[1]})
                self._frame_sent()
        except ConnectionClosed as error:
            raise CallLost(f"the telephone call was lost: {error}") from error

    async def listen(self) -> None:
        """Play what the server sends until the call ends. Raises CallLost.

        Cancelling leaves the call open.
        """
        try:
            async for frame in self._socket:
                await self._take(json.loads(frame))
        except ConnectionClosed as error:
            raise CallLost(f"the telephone call was lost: {error}") from error
        raise CallLost("the server ended the telephone call")

    async def _take(self, message: dict[str, Any]) -> None:
        match message["event"]:
            case "media":
                pcm = decode(base64.b64decode(message["media"]["payload"]), "mulaw")
                # The player drops further audio of what was cleared, as Realtime clients do; carriers do not.
                self.player.play(str(self._clears), to_float(self._in.feed(pcm)), self.now)
            case "mark":
                self._marks.append((self.player.end, message["mark"]["name"]))
            case "clear":
                self.player.flush(self.now)
                self._clears += 1
                marks, self._marks = self._marks, deque()
                for _, name in marks:
                    await self._send("mark", mark={"name": name})

    async def _send(self, event: str, **fields: Any) -> None:
        await self._socket.send(json.dumps({"event": event, "streamSid": STREAM, **fields}))


@asynccontextmanager
async def open_telephone(url: str, background: Samples | None = None) -> AsyncIterator[TelephoneCaller]:
    """Call the telephone wire of a server while the block runs. Cancelling hangs up.

    url: of its Realtime wire. background: noise on the line, float32 of shape (n,) at 24 kHz. If the call
    cannot begin or is lost, the block is cancelled and CallLost is raised.
    """
    try:
        async with connect(f"ws://{urlsplit(url).netloc}/v1/phone", proxy=None, compression=None) as socket:
            caller = TelephoneCaller(socket, background)
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(caller.speak()), tasks.create_task(caller.listen())]
                try:
                    yield caller
                finally:
                    for task in running:
                        task.cancel()
    except (OSError, WebSocketException) as error:
        raise CallLost(f"the telephone call could not begin: {error}") from error
    except BaseExceptionGroup as group:
        lost, others = group.split(CallLost)
        raise (others or lost or group).exceptions[0] from group
