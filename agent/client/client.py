"""A client of the Realtime protocol, for our server and any other: talk to an agent from Python.

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
"""So long a server may take to begin a call behind a socket that is open."""
PIECE = RATE // 10
"""Samples in one message at most, where more is sent at once."""
WAITING = 100
"""Messages that may wait for a lost socket; audio never does."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 8.0
"""Seconds between two tries to come back, at most: doubled each time, and by chance anything below."""
ACTIVE = "conversation_already_has_active_response"
NOT_FOUND = "conversation_not_found"
DOUBLE = "item_create_duplicate_item_id"
ADDING = "add_"
"""What the ids of events begin with that add an item, and may do so twice."""
EXPIRED = "session_expired"


class Call:
    """One call; ``connect`` makes it. Iterate over it to hear what happens, in one task; any may send.

    Iterating is also what keeps the call up: it opens another socket when one is lost. Cancelling an
    iteration loses no event. It ends when the server ends the call in good order, and with ``hang_up``.
    session: as the server told it last. over: why the call has ended, empty while it has not.
    dropped_seconds: audio that was not sent, because there was no socket.
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
        """Send what the microphone recorded next, or a whole recording at once.

        audio: mono; bytes are 16-bit little-endian, arrays 16-bit integers, or floats in [-1, 1]. rate:
        hertz; what is not 24 kHz is resampled as one stream. Waits while the server hears more slowly than
        this sends. While the socket is lost audio is dropped. Cancelling may cut it short.
        Raises CallLost, and ValueError for audio that is not mono.
        """
        chunk = AudioChunk(mono(audio), rate)
        if rate != RATE:
            if self._resampler is None or self._resampler[0] != rate:
                self._resampler = rate, Resampler(rate, RATE)
            chunk = AudioChunk(self._resampler[1].feed(chunk), RATE)
        for piece in chunk.slices(PIECE):
            data = base64.b64encode(piece.pcm).decode("ascii")
            message = json.dumps({"type": "input_audio_buffer.append", "audio": data})
            if not await self._sent(message):
                self.dropped_seconds += piece.seconds

    async def commit(self) -> None:
        """End the user's turn by hand, where the session has ``turn_detection`` None."""
        await self.send({"type": "input_audio_buffer.commit"})

    async def add_text(self, text: str, role: str = "user") -> None:
        """Add a message of the user, assistant or system; ``respond`` asks for an answer to it."""
        part = {"type": "output_text" if role == "assistant" else "input_text", "text": text}
        await self._add({"type": "message", "role": role, "content": [part]})

    async def respond(self, **response: Any) -> None:
        """Let the agent speak now; response: the protocol's fields, such as ``instructions``.

        Where a reply is in progress it is asked for again when that is done.
        """
        asked = {"type": "response.create", "response": response} if response else {"type": "response.create"}
        self._response, self._owed = json.dumps(asked), False
        await self._send(self._response)

    async def cancel(self) -> None:
        """Stop the reply in progress; where there is none nothing happens."""
        await self.send({"type": "response.cancel"})

    async def truncate(self, item: str, played_ms: int) -> None:
        """Say how much of the agent's item was played: that is what it has said, in the agent's memory too.

        Our server knows by its own clock what was heard when somebody interrupts; who has a loudspeaker
        knows it better. Stops the reply if the item is still being spoken.
        """
        cut = {"item_id": item, "content_index": 0, "audio_end_ms": played_ms}
        await self.send({"type": "conversation.item.truncate", **cut})

    async def return_result(self, call: str, output: str) -> None:
        """Tell what a tool returned, and let the agent go on with that; call: of ``ToolCalled``."""
        await self._add({"type": "function_call_output", "call_id": call, "output": output})
        await self.respond()

    async def update(self, **session: Any) -> None:
        """Change the session, merged object by object: ``update(instructions="Be brief.")``.

        What cannot be done is told as ``Failed``, and changes nothing. It is said again where a lost call
        begins anew.
        """
        update = {"type": "realtime", **session}
        self._configured = merged(self._configured, update)
        await self.send({"type": "session.update", "session": update})

    async def send(self, event: Raw) -> None:
        """Send an event of the protocol as it is. While the socket is lost it waits for the next one.

        What was sent in the moment of the loss may or may not have arrived. Raises CallLost where the call
        is over, or too much waits.
        """
        await self._send(json.dumps(event))

    async def hang_up(self) -> None:
        """End the call: iterating ends, and nothing can be sent any more. Leaving the block does the same.

        Where the socket is lost the server is told over another one, if it can be reached at once; else it
        waits for this client as long as it waits for any.
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
        """Add an item; it is sent again over each socket until the server says that it has it."""
        if len(self._items) == WAITING:  # of a server that does not say so
            del self._items[next(iter(self._items))]
        id_ = f"item_{secrets.token_hex(10)}"
        event = {"type": "conversation.item.create", "event_id": ADDING + id_, "item": {"id": id_, **item}}
        self._items[id_] = message = json.dumps(event)
        await self._sent(message)

    async def _send(self, message: str) -> None:
        if await self._sent(message):
            return
        if len(self._waiting) == WAITING:
            raise CallLost(f"{WAITING} messages wait for a lost socket: does anybody iterate over the call?")
        self._waiting.append(message)

    async def _sent(self, message: str) -> bool:
        """Tell whether a message could be sent; it may be sent later where not. Raises CallLost."""
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
        """Return the call itself: a second loop goes on where the first one stopped."""
        return self

    async def __anext__(self) -> CallEvent:
        """Return what happened next. Raises CallLost where the call is lost for good."""
        while True:
            if self._final is not None:
                raise self._final
            if self.over or self._socket is None:
                raise StopAsyncIteration
            if self._untold:
                return self._untold.popleft()
            if self._ask:
                with suppress(CallLost):  # receiving says so, too
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
        """Read an event; None for one that nobody has to know of."""
        try:
            raw: Raw = json.loads(message)
            event = read(raw)
        except (ValueError, TypeError, KeyError) as error:
            self._final = CallLost(f"the server sent what the protocol does not have: {error!r}", 1002)
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
        """Open another socket; None where the call is over. Raises CallLost where none can be opened.

        What is told first where the call has begun anew is how the replies end that nobody goes on with.
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
        """Open a socket, with patience where that helps. Cancelling leaves none behind. Raises CallLost."""
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
            reason = f"{self._url} did not greet within {GREETING_SECONDS:g} s"
            raise CallLost(reason) from error
        finally:
            if self._socket is not socket:
                socket.transport.abort()
                await socket.wait_closed()

    async def _greeted(self, socket: ClientConnection) -> Reconnected:
        """Begin or go on over a socket, and take it for the call's."""
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
        """Return the event after which a conversation goes on; None where some are missing."""
        while True:
            event: Raw = json.loads(await socket.recv())
            if event["type"] == "rejoinder.resumed":
                after: str | None = event.get("after")
                return after


@asynccontextmanager
async def connect(url: str, key: str | None = None, *, reconnect_s: float = 60.0) -> AsyncIterator[Call]:
    """Call a Realtime server for the length of the block; the server has greeted when it begins.

    url: of a server (``ws://127.0.0.1:8080``), or the whole address with its query (``?hold=true``). key: an
    API key, or a client secret. reconnect_s: for so many seconds a lost socket is opened again, or models
    that still load are waited for; 0 for never. The conversation goes on where the server has kept it.
    Cancelling the block hangs up. Raises CallLost, and ValueError for what is no address.
    """
    call = Call(url, key, reconnect_s)
    await call._begin()
    try:
        yield call
    finally:
        await call.hang_up()
