"""One call: a socket, a session, and the protocol object between them."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import replace
from io import RawIOBase
from typing import Any, Protocol

from starlette.websockets import WebSocketDisconnect, WebSocketState

from rejoinder.agent.wires.call_log import CallLog
from rejoinder.agent.wires.commands import (
    AddItem,
    AddRecording,
    AddText,
    Command,
    Configure,
    EndTurn,
    Forget,
    HangUp,
    Hear,
    Interrupt,
    Remove,
    Respond,
    Truncate,
)
from rejoinder.agent.wires.failures import public_error, reported
from rejoinder.agent.wires.feed import Feed
from rejoinder.agent.wires.long_messages import Long
from rejoinder.agent.wires.socket import (
    BEHIND,
    INTERNAL_ERROR,
    NO_CODE,
    NORMAL,
    POLICY_VIOLATION,
    Socket,
    farewell,
    frame_of,
)
from rejoinder.agent.wires.traces import Traces
from rejoinder.pipeline import (
    RATE,
    CallOver,
    Closed,
    Event,
    Models,
    Options,
    Overloaded,
    PipelineError,
    ProtocolError,
    ReplyDone,
    ReplyStarted,
    Session,
    open_session,
)
from rejoinder.pipeline.errors import first_error

log = logging.getLogger(__name__)

SEND_SECONDS = 5.0
"""The call ends when the client's socket stays full for this long, in seconds."""
IDLE_READ_SECONDS = 0.2
"""Interval between two reads of a silent call, in seconds. Waking up for each frame is the cost of an idle
call."""
LONG_IDLE_SECONDS = 5.0
"""A caller silent for this long, in seconds, may be read later while other calls wait for a model. They share
the processor, and a silence is not urgent."""
LATEST_READ_SECONDS = 0.6
"""Longest interval between two reads of a silent call, in seconds."""
CLOCK_SECONDS = 0.001
"""Shortest wait, in seconds: some clocks have no finer resolution. A call closer than this to its read time
waits for the next one."""
GROUP_READ_SECONDS = 0.005
"""Silent calls due within this many seconds are read together: the caches are warm, and the models' threads
are interrupted less often."""


Message = dict[str, Any] | str | bytes
"""What a client is sent: a dictionary, which becomes JSON, or a text or binary message as it is."""


class Wire(Protocol):
    """The server's side of a protocol for one connection. It does no I/O."""

    @property
    def name(self) -> str:
        """The name of the protocol, or of the carrier whose dialect this is."""

    @property
    def id(self) -> str:
        """The client's identifier of the call, "" where it has none."""

    @property
    def flush_after(self) -> float | None:
        """Seconds without a session event after which ``flush`` is called; None for never."""

    def open(self) -> Iterable[Command | Message]:
        """Return the commands and messages that begin the call."""

    def receive(self, frame: str | bytes | Long, more: bool = False) -> Iterable[Command | Message]:
        """Take one message of the client; return what follows from it. Raises ProtocolError.

        Consume the result before the next call. more: whether the next message is here already; audio may
        then be held back until that one is taken.
        """

    def tell(self, happened: Event) -> Iterable[Command | Message]:
        """Return the commands and messages that follow from a session event."""

    def flush(self) -> Iterable[Command | Message]:
        """Return messages that were held back for more audio."""

    def heard(self, turn: int, text: str) -> None:
        """Record the part of a truncated reply that the user heard."""


def until_next_read(now: float, began: float) -> float:
    """Return how many seconds a silent call waits before its next read. Both arguments are loop times.

    Read times have a fixed phase, set by when the call began. If they counted from the call's last frame, two
    calls that were once read in the same turn of the loop would stay together, and in the end all calls
    would. Calls whose read times are close are read together.
    """
    place = now + IDLE_READ_SECONDS - (now - began) % IDLE_READ_SECONDS
    wait = place - now + -place % GROUP_READ_SECONDS
    return wait if wait > CLOCK_SECONDS else wait + IDLE_READ_SECONDS


def may_skip_a_read(now: float, lively: float, since: float) -> bool:
    """Return whether a silent call may skip one more read. All arguments are loop times, in seconds.

    lively: of the last speech or event. since: of the last read.
    """
    return now - lively >= LONG_IDLE_SECONDS and now - since + IDLE_READ_SECONDS <= LATEST_READ_SECONDS


class Call:
    """Carries messages between a client and its session, in both directions at once.

    traces: the open traces file, None for none. caller: the caller's description in the log.
    """

    def __init__(
        self,
        websocket: Socket,
        models: Models,
        options: Options,
        wire: Wire,
        traces: RawIOBase | None,
        caller: str = "",
    ) -> None:
        self.feed = Feed(wire.id, wire.name, time.time(), time.monotonic)
        self.log = CallLog(self.feed.id, wire.name, caller, time.monotonic)
        self._websocket = websocket
        self._models = models
        self._options = options
        self._wire = wire
        self._traces = Traces(traces, self.feed.id)
        self._writing = asyncio.Lock()
        self._sending: asyncio.Timeout | None = None
        self._behind: deque[MutableMapping[str, Any]] = deque()
        self._lively = 0.0

    async def run(self) -> tuple[int, str]:
        """Run the call until one side ends it; return a close code (0: already closed) and a reason.

        An error ends this call, with a reason, and no other call. Cancelling ends the call and everything it
        started.
        """
        detail, level, unexpected = "", logging.INFO, None
        self.log.begin()
        try:
            await self._converse()
        except asyncio.CancelledError:
            self.feed.reason = self.feed.reason or "the server is shutting down"
            raise
        except Exception as error:
            match cause := first_error(error):
                case WebSocketDisconnect():
                    pass
                case CallOver():
                    self.feed.reason = str(cause)
                    return await self._over(cause)
                case _:
                    self.feed.reason, detail = public_error(cause).message, str(cause) or type(cause).__name__
                    expected = isinstance(cause, PipelineError)  # its message is enough: no traceback
                    level, unexpected = (logging.WARNING, None) if expected else (logging.ERROR, error)
                    clients = isinstance(cause, Overloaded | ProtocolError)
                    return POLICY_VIOLATION if clients else INTERNAL_ERROR, self.feed.reason
        finally:
            self.feed.end()
            self.log.end(detail or self.feed.reason, level, unexpected)
        return 0, ""

    async def _converse(self) -> None:
        """Open the session and carry messages until the client leaves."""
        session: Session | None = None
        try:
            async with open_session(self._models, self._options) as session:
                await self._follow(session, self._wire.open())
                async with asyncio.TaskGroup() as tasks:
                    telling = tasks.create_task(self._tell(session))
                    await self._read(session)
                    telling.cancel()
        finally:
            if session is not None:  # log the end of a reply that the end of the call cut off
                for happened in session.events.receive_nowait(session.events.size):
                    self._note(self._plain(happened))

    async def _over(self, cause: CallOver) -> tuple[int, str]:
        """Handle the end of a call that reached its limit; return a close code and a reason."""
        return NORMAL, str(cause)

    async def _receive(self) -> MutableMapping[str, Any]:
        message = await self._websocket.receive()
        if behind := message.get(BEHIND):
            self._behind.extend(behind())
        return message

    async def _read(self, session: Session) -> int:
        """Carry out the client's messages until its socket closes; return the close code."""
        loop = asyncio.get_running_loop()
        began = self._lively = loop.time()
        while True:
            message = self._behind.popleft() if self._behind else await self._receive()
            if message["type"] == "websocket.disconnect":
                code = int(message.get("code") or NO_CODE)
                self.feed.reason = farewell(code, message.get("reason") or "")
                return code
            more = bool(self._behind)
            answers = self._wire.receive(frame_of(message), more)
            if isinstance(await self._follow(session, answers), Hear) and not more:
                await asyncio.sleep(0)  # let the session take the audio,
                await asyncio.sleep(0)  # and let the VAD run it in one batch with other calls' audio
                if session.idle:
                    await self._rest(began, session.options)
                else:
                    self._lively = loop.time()

    async def _rest(self, began: float, options: Options) -> None:
        """Wait until the next read time of a silent call, or a later one while other calls wait for a model.

        No read is skipped where silence or the call's length has a limit: speech must be read before the
        limit expires.
        """
        loop = asyncio.get_running_loop()
        since, limited = loop.time(), options.idle_s or options.max_call_s
        while True:
            await asyncio.sleep(until_next_read(loop.time(), began))
            others = self._models.load_shedder.pressing and not limited
            if not (others and may_skip_a_read(loop.time(), self._lively, since)):
                return

    async def _follow(self, session: Session, answers: Iterable[Command | Message]) -> Command | None:
        """Carry out commands and send messages, in order.

        Return the last command, None if a message comes after it.
        """
        last: Command | None = None
        messages: list[Message] = []
        for answer in answers:
            if isinstance(answer, dict | str | bytes):
                messages.append(answer)
                continue
            await self._send(messages)
            messages = []
            last = answer
            await self._obey(session, answer)
        await self._send(messages)
        return None if messages else last

    async def _obey(self, session: Session, command: Command) -> None:
        """Carry out one command. Waits while the session has a second of unprocessed audio."""
        match command:
            case Hear(pcm):
                await session.hear(pcm)
            case EndTurn():
                await session.end_user_turn()
            case Forget():
                session.clear_audio()
            case AddText(role, text):
                session.add_text(text, role)
                self._typed(role, text)
            case AddItem(entry, after):
                session.insert(entry, after)
                self._typed(entry.role, entry.text)
            case AddRecording():
                await self._transcribe(session, command)
            case Remove(key):
                session.remove(key)
            case Respond(request):
                session.respond(request)
            case Interrupt(aside):
                session.interrupt(aside)
            case Truncate(turn, seconds):
                if (heard := session.truncate(turn, seconds)) is not None:
                    self._wire.heard(turn, heard)
                    self.feed.heard(turn, heard)
            case Configure(options):
                session.configure(options)
            case HangUp(reason):
                raise CallOver(reason)

    async def _transcribe(self, session: Session, given: AddRecording) -> None:
        """Transcribe a recording and send the result.

        The client's next message waits: it may build on the words.
        """
        seconds, text, cause = len(given.pcm) / 2 / RATE, "", ""
        try:
            text = await session.insert_audio(given.pcm, given.key, given.after)
        except PipelineError as error:
            cause = reported(f"call {self.feed.id}", "an item's audio was not transcribed", error).message
        await self._send(given.on_transcribed(text, seconds, cause))

    async def _tell(self, session: Session) -> None:
        while True:
            try:
                async with asyncio.timeout(self._wire.flush_after):
                    happened = await session.events.receive()
            except TimeoutError:
                await self._follow(session, self._wire.flush())
                continue
            except Closed:
                return
            self._lively = asyncio.get_running_loop().time()
            happened = self._plain(happened)
            self._note(happened)
            await self._follow(session, self._wire.tell(happened))

    def _plain(self, happened: Event) -> Event:
        """Return the event; where it is the end of a failed reply, with an error message for callers."""
        if not isinstance(happened, ReplyDone) or happened.status != "failed":
            return happened
        cause = happened.cause or PipelineError(happened.error)
        said = reported(f"call {self.feed.id}", f"turn {happened.turn} failed", cause)
        return replace(happened, error=said.message, code=said.code, cause=None)

    def _note(self, happened: Event) -> None:
        """Pass an event to the observers: caption watchers, the log and the traces file."""
        if self.feed.watchers:
            self.feed.tell(happened)
        self._traces.note(happened)
        if isinstance(happened, ReplyStarted):
            self.log.turns += 1

    def _typed(self, role: str, text: str) -> None:
        self.feed.typed(role, text)
        self._traces.typed(role, text)

    async def _send(self, messages: Sequence[Message]) -> None:
        """Write messages in order, with no others between them. Raises Overloaded after ``SEND_SECONDS``."""
        if not messages:
            return
        async with self._writing:
            for message in messages:
                await self._write(message)

    async def _write(self, message: Message) -> None:
        if self._websocket.application_state is not WebSocketState.CONNECTED:
            return
        try:
            async with asyncio.timeout(SEND_SECONDS) as self._sending:
                if isinstance(message, bytes):
                    await self._websocket.send_bytes(message)
                else:
                    text = message if isinstance(message, str) else json.dumps(message)
                    await self._websocket.send_text(text)
        except TimeoutError:
            raise Overloaded(f"the client has not read for {SEND_SECONDS:g} s") from None
        except RuntimeError as error:  # Starlette raises this for a socket that is already closed
            raise WebSocketDisconnect(reason=str(error)) from None
        finally:
            self._sending = None
