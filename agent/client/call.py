"""A Python client of the Realtime protocol, for Rejoinder and other servers.

async with connect("ws://127.0.0.1:8080") as call:
    await call.send_audio(pcm, rate=16_000)
    async for event in call:
        match event:
            case AgentAudio(pcm=pcm):
                ...
"""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from numpy.typing import NDArray

from rejoinder.agent.client.audio import CLIENT_RATE, mono
from rejoinder.agent.client.connection import Connection
from rejoinder.agent.client.conversation import Conversation
from rejoinder.agent.client.events import CallEvent, Raw
from rejoinder.agent.client.socket import CallLost
from rejoinder.agent.wires.resampler import Resampler
from rejoinder.pipeline.audio.chunk import AudioChunk

MOST_MESSAGE_SAMPLES = CLIENT_RATE // 10
"""Most samples in one message."""


class Call:
    """One call; ``connect`` creates it. Iterate over it in one task to receive events; any task may send.

    Iterating also reconnects: it opens another socket when one is lost. Cancelling an iteration loses no
    event. The iteration ends when the server ends the call in order, and after ``hang_up``.
    dropped_seconds: seconds of audio that were not sent because the socket was lost.
    """

    def __init__(self, connection: Connection, conversation: Conversation) -> None:
        self.dropped_seconds = 0.0
        self._connection = connection
        self._conversation = conversation
        self._received: deque[CallEvent] = deque()
        self._resampler: tuple[int, Resampler] | None = None

    @property
    def session(self) -> Raw:
        """The last state of the session that the server sent."""
        return self._conversation.session

    def follow_playback(self, position: Callable[[], tuple[str, int] | None]) -> None:
        """Report what was played whenever the call resumes, so that a restarted server hardly repeats a word.

        position: returns the item that was played last and how many milliseconds of it, None where unknown.
        After ``Reconnected(missed=True)`` it counts the audio of an item from there on.
        """
        self._conversation.position = position

    @property
    def over(self) -> str:
        """Why the call ended, "" while it goes on."""
        return self._conversation.over

    # --- to the server ----------------------------------------------------------------------------------

    async def send_audio(
        self, audio: bytes | bytearray | memoryview | NDArray[Any], rate: int = CLIENT_RATE
    ) -> None:
        """Send the next audio of the microphone, or a whole recording.

        audio: mono; 16-bit little-endian bytes, or an array of shape (n,), int16 or floats in [-1, 1]. rate:
        in hertz; any rate but 24 kHz is resampled as one stream. Waits while the server reads more slowly
        than this sends. Drops audio while the socket is lost. Cancelling may send only part of the audio.
        Raises CallLost, and ValueError for audio that is not mono.
        """
        chunk = AudioChunk(mono(audio), rate)
        if rate != CLIENT_RATE:
            if self._resampler is None or self._resampler[0] != rate:
                self._resampler = rate, Resampler(rate, CLIENT_RATE)
            chunk = AudioChunk(self._resampler[1].feed(chunk.pcm), CLIENT_RATE)
        for piece in chunk.slices(MOST_MESSAGE_SAMPLES):
            data = base64.b64encode(piece.pcm).decode("ascii")
            message = json.dumps({"type": "input_audio_buffer.append", "audio": data})
            if not await self._connection.send(message):
                self.dropped_seconds += piece.seconds

    async def commit(self) -> None:
        """End the user's turn; for sessions with ``turn_detection`` None. Cancelling may leave it unsent."""
        await self.send({"type": "input_audio_buffer.commit"})

    async def add_text(self, text: str, role: str = "user") -> None:
        """Add a message of the user, assistant or system. Call ``respond`` for an answer to it.

        Cancelling does not withdraw the message: it is sent again with the next socket.
        """
        part = {"type": "output_text" if role == "assistant" else "input_text", "text": text}
        await self._connection.send(
            self._conversation.add({"type": "message", "role": role, "content": [part]})
        )

    async def respond(self, **response: Any) -> None:
        """Request a reply. response: fields of the protocol, such as ``instructions``.

        If a reply is in progress, the client requests this one again after it. Cancelling may leave the
        request unsent.
        """
        await self._connection.post(self._conversation.respond(response))

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
        result = {"type": "function_call_output", "call_id": call, "output": output}
        await self._connection.send(self._conversation.add(result))
        await self.respond()

    async def update(self, **session: Any) -> None:
        """Change the session: ``update(instructions="Be brief.")``. Objects are merged recursively.

        A refused change arrives as ``Failed`` and changes nothing. The client repeats the changes if a lost
        call starts again. Cancelling may leave the change unsent until then.
        """
        await self._connection.post(self._conversation.update(session))

    async def send(self, event: Raw) -> None:
        """Send an event of the protocol. While the socket is lost, the event waits for the next one.

        An event that was sent just before the loss may or may not have arrived. Cancelling may leave the
        event unsent. Raises CallLost if the call is over, or if too many events wait.
        """
        await self._connection.post(json.dumps(event))

    async def hang_up(self) -> None:
        """End the call: iterating stops, and sending raises CallLost. Leaving the block does the same.

        If the socket is lost, this opens another one to end the call, if the server is reachable at once.
        Otherwise the server keeps the conversation until its usual limit. Cancelling leaves the call ended
        for this client; the server may keep it until that limit.
        """
        self._conversation.over = self.over or "the call is over"
        await self._connection.close()

    # --- from the server --------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        """Return the call itself: a second loop continues where the first one stopped."""
        return self

    async def __anext__(self) -> CallEvent:
        """Return the next event. Cancelling loses no event. Raises CallLost if the call cannot be resumed."""
        conversation = self._conversation
        while True:
            if self._connection.failure is not None:
                raise self._connection.failure
            if conversation.over:
                raise StopAsyncIteration
            if self._received:
                return self._received.popleft()
            if conversation.due:
                with suppress(CallLost):  # receiving raises it, too
                    await self._connection.post(conversation.request)
                conversation.due = False
            events = await self._connection.receive()
            if events:  # the first one also if it ends the call
                self._received.extend(events[1:])
                return events[0]


@asynccontextmanager
async def connect(url: str, key: str | None = None, *, reconnect_s: float = 60.0) -> AsyncIterator[Call]:
    """Call a Realtime server while the block runs; the session exists when the block begins.

    url: of a server (``ws://127.0.0.1:8080``), or the whole address with its query (``?hold=true``). key: an
    API key, or a client secret. reconnect_s: how long to retry after a lost socket, or while the server's
    models load, in seconds; 0: do not retry. The conversation resumes if the server has kept it. Cancelling
    the block hangs up. Raises CallLost, and ValueError if ``url`` is not the address of a server.
    """
    conversation = Conversation()
    connection = Connection(url, key, reconnect_s, conversation)
    await connection.begin()
    call = Call(connection, conversation)
    try:
        yield call
    finally:
        await call.hang_up()
