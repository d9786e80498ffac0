"""A Python client of the Realtime protocol, for Rejoinder and other servers.

async with connect("ws://127.0.0.1:8080") as call:
    await call.send_audio(pcm, rate=16_000)
    async for event in call:
        match event:
            case AgentAudio(pcm=pcm):
                ...
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from numpy.typing import NDArray
from tenacity import AsyncRetrying, retry_if_exception, stop_before_delay, wait_random_exponential
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from rejoinder.agent.client.audio import mono
from rejoinder.agent.client.events import (
    CallEvent,
    Failed,
    Other,
    Raw,
    Reconnected,
    ReplyDone,
    ReplyStarted,
    broken_off,
    read,
)
from rejoinder.agent.client.player import RATE
from rejoinder.agent.client.socket import (
    CLOSE_SECONDS,
    NORMAL,
    CallLost,
    closed,
    greeting,
    may_come_back,
    open_socket,
    realtime_url,
    returning,
)
from rejoinder.agent.wires.merging import merged
from rejoinder.agent.wires.resampler import Resampler
from rejoinder.pipeline.audio.chunk import AudioChunk

log = logging.getLogger(__name__)

__all__ = ["RATE", "Call", "CallLost", "connect"]

GREETING_SECONDS = 10.0
"""Longest wait for a server's greeting on an open socket."""
PIECE = RATE // 10
"""Most samples in one message."""
WAITING = 100
"""Most messages that wait for a lost socket. Audio never waits."""
FIRST_WAIT = 0.5
"""Upper limit of the wait before the first retry; it doubles each time. The wait is random below it."""
LONGEST_WAIT = 8.0
"""Upper limit of the wait before any retry."""
ACTIVE = "conversation_already_has_active_response"
"""Error code: a reply is already in progress."""
NOT_FOUND = "conversation_not_found"
"""Error code: the server no longer has the conversation to resume."""
DOUBLE = "item_create_duplicate_item_id"
"""Error code: the server already has the item."""
ADDING = "add_"
"""Prefix of the ids of events that add an item; such an event may be sent twice."""
EXPIRED = "session_expired"
"""Error code: the session has reached its time limit."""


class Call:
    """One call; ``connect`` creates it. Iterate over it in one task to receive events; any task may send.

    Iterating also reconnects: it opens another socket when one is lost. Cancelling an iteration loses no
    event. The iteration ends when the server ends the call in order, and after ``hang_up``.
    session: the last state that the server sent. over: why the call ended, "" while it goes on.
    dropped_seconds: seconds of audio that were not sent because the socket was lost.
    """

    def __init__(self, url: str, key: str | None, reconnect_s: float) -> None:
        self.session: Raw = {}
        self.dropped_seconds = 0.0
        self._url, self._key, self._reconnect_s = realtime_url(url), key, reconnect_s
        self._socket: ClientConnection | None = None
        self.over = self._conversation = self._last_event = ""
        self._final: CallLost | None = None
        self._waiting: deque[str] = deque()
        self._replies: list[str] = []  # begun, and not done
        self._untold: deque[CallEvent] = deque()
        self._items: dict[str, str] = {}
        self._configured: Raw = {}
        self._response = ""
        self._owed = self._ask = False
        self._resampler: tuple[int, Resampler] | None = None

    # --- to the server ----------------------------------------------------------------------------------

    async def send_audio(
        self, audio: bytes | bytearray | memoryview | NDArray[Any], rate: int = RATE
    ) -> None:
        """Send the next audio of the microphone, or a whole recording.

        audio: mono; 16-bit little-endian bytes, or an array of shape (n,), int16 or floats in [-1, 1]. rate:
        in hertz; any rate but 24 kHz is resampled as one stream. Waits while the server reads more slowly
        than this sends. Drops audio while the socket is lost. Cancelling may send only part of the audio.
        Raises CallLost, and ValueError for audio that is not mono.
        """
        chunk = AudioChunk(mono(audio), rate)
        if rate != RATE:
            if self._resampler is None or self._resampler[0] != rate:
                self._resampler = rate, Resampler(rate, RATE)
            chunk = AudioChunk(self._resampler[1].feed(chunk.pcm), RATE)
        for piece in chunk.slices(PIECE):
            data = base64.b64encode(piece.pcm).decode("ascii")
            message = json.dumps({"type": "input_audio_buffer.append", "audio": data})
            if not await self._sent(message):
                self.dropped_seconds += piece.seconds

    async def commit(self) -> None:
        """End the user's turn; for sessions with ``turn_detection`` None. Cancelling may leave it unsent."""
        await self.send({"type": "input_audio_buffer.commit"})

    async def add_text(self, text: str, role: str = "user") -> None:
        """Add a message of the user, assistant or system. Call ``respond`` for an answer to it.

        Cancelling does not withdraw the message: it is sent again with the next socket.
        """
        part = {"type": "output_text" if role == "assistant" else "input_text", "text": text}
        await self._add({"type": "message", "role": role, "content": [part]})

    async def respond(self, **response: Any) -> None:
        """Request a reply. response: fields of the protocol, such as ``instructions``.

        If a reply is in progress, the client requests this one again after it. Cancelling may leave the
        request unsent.
        """
        asked = {"type": "response.create", "response": response} if response else {"type": "response.create"}
        self._response, self._owed = json.dumps(asked), False
        await self._send(self._response)

    async def cancel(self) -> None:
        """Stop the reply in progress, if there is one. Cancelling may leave the request unsent."""
        await self.send({"type": "response.cancel"})

    async def truncate(self, item: str, played_ms: int) -> None:
        """Report how many milliseconds of the agent's item were played; the agent remembers only that part.

        On an interruption, Rejoinder estimates the played part by its own clock; the client's loudspeaker
        knows it exactly. Stops the reply if the item is still being spoken. Cancelling may leave the report
        unsent.
        """
        cut = {"item_id": item, "content_index": 0, "audio_end_ms": played_ms}
        await self.send({"type": "conversation.item.truncate", **cut})

    async def return_result(self, call: str, output: str) -> None:
        """Send the result of a tool, and request a reply to it. call: the id in ``ToolCalled``.

        Cancelling does not withdraw the result, but may leave the request unsent.
        """
        await self._add({"type": "function_call_output", "call_id": call, "output": output})
        await self.respond()

    async def update(self, **session: Any) -> None:
        """Change the session: ``update(instructions="Be brief.")``. Objects are merged recursively.

        A refused change arrives as ``Failed`` and changes nothing. The client repeats the changes if a lost
        call starts again. Cancelling may leave the change unsent until then.
        """
        update = {"type": "realtime", **session}
        self._configured = merged(self._configured, update)
        await self.send({"type": "session.update", "session": update})

    async def send(self, event: Raw) -> None:
        """Send an event of the protocol. While the socket is lost, the event waits for the next one.

        An event that was sent just before the loss may or may not have arrived. Cancelling may leave the
        event unsent. Raises CallLost if the call is over, or if too many events wait.
        """
        await self._send(json.dumps(event))

    async def hang_up(self) -> None:
        """End the call: iterating stops, and sending raises CallLost. Leaving the block does the same.

        If the socket is lost, this opens another one to end the call, if the server is reachable at once.
        Otherwise the server keeps the conversation until its usual limit. Cancelling leaves the call ended
        for this client; the server may keep it until that limit.
        """
        self.over = self.over or "the call is over"
        if self._socket is None:
            return
        await self._socket.close()
        tried = self._final is not None and self._reconnect_s > 0
        if self._conversation and self._socket.protocol.close_rcvd is None and not tried:
            self._conversation, place = "", returning(self._url, self._conversation, self._last_event)
            with suppress(CallLost, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    socket = await open_socket(place, self._key)
                await socket.close()

    async def _add(self, item: Raw) -> None:
        """Add an item, and send it again over each new socket until the server confirms it."""
        if len(self._items) == WAITING:  # the server does not confirm items
            del self._items[next(iter(self._items))]
        id_ = f"item_{secrets.token_hex(10)}"
        event = {"type": "conversation.item.create", "event_id": ADDING + id_, "item": {"id": id_, **item}}
        self._items[id_] = message = json.dumps(event)
        await self._sent(message)

    async def _send(self, message: str) -> None:
        if await self._sent(message):
            return
        if len(self._waiting) == WAITING:
            raise CallLost(
                f"{WAITING} messages wait for a lost socket: iterate over the call, so that it reconnects"
            )
        self._waiting.append(message)

    async def _sent(self, message: str) -> bool:
        """Send a message. Return False if the socket is lost but may come back. Raises CallLost."""
        if self._final or self.over or self._socket is None:
            raise self._final or CallLost(self.over)
        try:
            await self._socket.send(message)
        except ConnectionClosed as error:
            if not self._may_return(closed(error)):
                raise closed(error) from error
            return False
        return True

    # --- from the server --------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        """Return the call itself: a second loop continues where the first one stopped."""
        return self

    async def __anext__(self) -> CallEvent:
        """Return the next event. Cancelling loses no event. Raises CallLost if the call cannot be resumed."""
        while True:
            if self._final is not None:
                raise self._final
            if self.over or self._socket is None:
                raise StopAsyncIteration
            if self._untold:
                return self._untold.popleft()
            if self._ask:
                with suppress(CallLost):  # the receive below raises it, too
                    await self._send(self._response)
                self._ask = False
            try:
                event = self._take(await self._socket.recv())
            except ConnectionClosed as error:
                if event := await self._lost(closed(error)):
                    return event
                continue
            if event is not None:
                return event

    def _take(self, message: str | bytes) -> CallEvent | None:
        """Return an event, or None for an event that only the client itself needs."""
        try:
            raw: Raw = json.loads(message)
            event = read(raw)
        except (ValueError, TypeError, KeyError) as error:
            self._final = CallLost(f"the server sent an event that breaks the protocol: {error!r}", 1002)
            raise self._final from error
        self._last_event = raw.get("event_id", "")
        match event:
            case Other("session.updated"):
                self.session = raw["session"]
            case Other("conversation.created"):
                self._conversation = raw["conversation"].get("id", "")
            case Failed(code=code) if code == ACTIVE and self._response:
                self._owed = True
                return None
            case Failed(code=code) if code == NOT_FOUND:
                return None
            case Failed(code=code) if (raw["error"].get("event_id") or "").startswith(ADDING):
                self._items.pop(raw["error"]["event_id"].removeprefix(ADDING), None)
                return None if code == DOUBLE else event
            case Other("conversation.item.added" | "conversation.item.created"):
                self._items.pop(raw["item"].get("id"), None)
            case Failed(message, code) if code == EXPIRED:
                self.over = message
            case ReplyStarted(reply) if reply not in self._replies:
                self._replies.append(reply)
            case ReplyDone(reply):
                self._replies = [other for other in self._replies if other != reply]
                self._owed, self._ask = False, self._owed or self._ask
        return event

    # --- coming and going -------------------------------------------------------------------------------

    def _may_return(self, lost: CallLost) -> bool:
        return self._reconnect_s > 0 and may_come_back(lost, bool(self.session))

    def _is_over(self) -> bool:
        return bool(self.over)

    async def _lost(self, lost: CallLost) -> CallEvent | None:
        """Open another socket. Returns None if the call is over. Raises CallLost if no socket can be opened.

        If the server no longer has the conversation, the first events are the ends of the unfinished replies.
        """
        if self.over or lost.code == NORMAL:
            self.over = self.over or str(lost)
            return None
        if not self._may_return(lost):
            self._final = lost
            raise lost
        log.warning("%s; calling again", lost)
        try:
            back = await self._begin()
        except CallLost as error:
            if self._is_over():  # hung up meanwhile
                return None
            self._final = error
            raise
        if not back.resumed:
            self._untold.extend(broken_off(reply, str(lost)) for reply in self._replies)
            self._replies.clear()
        self._untold.append(back)
        return self._untold.popleft()

    async def _begin(self) -> Reconnected:
        """Open a socket, with retries if they may help. Cancelling leaves no open socket. Raises CallLost."""
        tries = AsyncRetrying(
            retry=retry_if_exception(self._is_passing),
            wait=wait_random_exponential(multiplier=FIRST_WAIT, max=LONGEST_WAIT),
            stop=stop_before_delay(self._reconnect_s),
            reraise=True,
        )
        return await tries(self._open)

    def _is_passing(self, error: BaseException) -> bool:
        return isinstance(error, CallLost) and not self.over and self._may_return(error)

    async def _open(self) -> Reconnected:
        if self.over:
            raise CallLost(self.over, NORMAL)
        socket = await open_socket(returning(self._url, self._conversation, self._last_event), self._key)
        try:
            return await self._greeted(socket)
        except ConnectionClosed as error:
            raise closed(error) from error
        except TimeoutError as error:
            reason = (
                f"{self._url} sent no session.created within {GREETING_SECONDS:g} s: is it a Realtime server?"
            )
            raise CallLost(reason) from error
        finally:
            if self._socket is not socket:
                socket.transport.abort()
                await socket.wait_closed()

    async def _greeted(self, socket: ClientConnection) -> Reconnected:
        """Begin or resume the call over a socket, and make it the call's socket."""
        async with asyncio.timeout(GREETING_SECONDS):
            hello = await greeting(socket)
            resumed = bool(self.session) and hello["session"].get("id") == self.session.get("id")
            after = await self._resumed(socket) if resumed else None
        if not resumed:
            self._conversation, self._last_event = "", hello.get("event_id", "")
            self._owed = self._ask = False
            if self._configured:
                await socket.send(json.dumps({"type": "session.update", "session": self._configured}))
        for message in list(self._items.values()):
            await socket.send(message)
        while self._waiting:
            await socket.send(self._waiting[0])
            self._waiting.popleft()
        if self.over:  # hung up meanwhile
            await socket.close()
            raise CallLost(self.over, NORMAL)
        self.session, self._socket = hello["session"], socket
        return Reconnected(resumed, after is None, hello)

    async def _resumed(self, socket: ClientConnection) -> str | None:
        """Return the event after which the conversation continues, None if some events are lost."""
        while True:
            event: Raw = json.loads(await socket.recv())
            if event["type"] == "rejoinder.resumed":
                after: str | None = event.get("after")
                return after


@asynccontextmanager
async def connect(url: str, key: str | None = None, *, reconnect_s: float = 60.0) -> AsyncIterator[Call]:
    """Call a Realtime server while the block runs; the session exists when the block begins.

    url: of a server (``ws://127.0.0.1:8080``), or the whole address with its query (``?hold=true``). key: an
    API key, or a client secret. reconnect_s: how long to retry after a lost socket, or while the server's
    models load, in seconds; 0: do not retry. The conversation resumes if the server has kept it. Cancelling
    the block hangs up. Raises CallLost, and ValueError if ``url`` is not the address of a server.
    """
    call = Call(url, key, reconnect_s)
    await call._begin()
    try:
        yield call
    finally:
        await call.hang_up()
