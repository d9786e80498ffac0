"""One call: the client's connection, a session, and the protocol object between them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from websockets.frames import CloseCode

from rejoinder.agent.app.agent_call import AgentCall
from rejoinder.agent.app.tool_result import ToolReturned
from rejoinder.agent.recording.changes import RecordingChange
from rejoinder.agent.recording.no_recorder import NoRecorder
from rejoinder.agent.recording.recorder import AudioRecorder
from rejoinder.agent.trace_file import TraceFile
from rejoinder.agent.wires.call_log import UNKNOWN_CALLER, CallLog, LoggedCaller
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
    ReadMore,
    Record,
    RecordingTranscribed,
    Remove,
    Respond,
    Restore,
    Truncate,
    Truncated,
)
from rejoinder.agent.wires.departure import Departure
from rejoinder.agent.wires.failures import SHUTTING_DOWN, Departed, Stuck, public_error, reported
from rejoinder.agent.wires.feed import Feed
from rejoinder.agent.wires.idle_reads import may_skip_a_read, until_next_read
from rejoinder.agent.wires.observer import CallObserver, Observers
from rejoinder.agent.wires.socket import CallSocket, ClientAway, ConnectionChange, Gone, Lost, Resumed
from rejoinder.agent.wires.traces import Traces
from rejoinder.agent.wires.transport import Disconnected, Message, Unsent
from rejoinder.agent.wires.wire import Answers, Wire
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
    ReplyAudio,
    ReplyDone,
    ReplyStarted,
    Session,
    open_session,
)
from rejoinder.pipeline.engines import call_id
from rejoinder.pipeline.errors import HungUp, first_error
from rejoinder.pipeline.pulse import Pulse


class Call:
    """Carries messages between a client and its session, in both directions at once.

    traces: the open traces file, None for none. caller: the caller's description in the log. agent: the
    integrator's agent in this call, None for none. observers: follow the call. recorder: records it, None
    where there are no recordings. meter: takes the seconds of the client's audio, and raises CallOver
    where no more is allowed; None without a limit. pace: runs beside the call, and raises the error that
    ends it; takes a function that returns how many messages have come. None without a limit.
    """

    def __init__(
        self,
        socket: CallSocket,
        models: Models,
        options: Options,
        wire: Wire,
        traces: TraceFile | None,
        caller: LoggedCaller = UNKNOWN_CALLER,
        agent: AgentCall | None = None,
        observers: Sequence[CallObserver] = (),
        recorder: AudioRecorder | None = None,
        meter: Callable[[float], None] | None = None,
        pace: Callable[[Callable[[], int]], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self.feed = Feed(wire.id, wire.name, time.time(), time.monotonic)
        self.log = CallLog(self.feed.id, wire.name, caller, time.monotonic)
        self._socket = socket
        self._models = models
        self._recorder = recorder or NoRecorder()
        self._meter = meter
        self._pace = pace
        self._messages = 0
        self._options = self._recorder.deferring(agent.configured(options) if agent else options)
        self._agent = agent
        self._wire = wire
        self._observers = Observers(*observers)
        self._traces = Traces(traces, self.feed.id)
        self._began = self._last_active = 0.0
        self._played: tuple[int, float] | None = None
        self.departure = Departure()
        self.pulse = Pulse(time.monotonic)

    async def run(self) -> tuple[int, str]:
        """Run the call until one side ends it; return a close code (0: already closed) and a reason.

        An error ends this call, with a reason, and no other call. Cancelling ends the call and everything it
        started.
        """
        detail, level, unexpected, began = "", logging.INFO, None, time.monotonic()
        failure: BaseException | None = None
        call_id.current.set(self.log.id)
        self.log.begin()
        try:
            await self._converse()
        except asyncio.CancelledError:
            self.feed.reason = self.feed.reason or SHUTTING_DOWN
            raise
        except Exception as error:
            match cause := first_error(error):
                case Unsent():
                    pass
                case HungUp() | Departed():
                    self.feed.reason, left = str(cause), isinstance(cause, HungUp)
                    return CloseCode.NORMAL_CLOSURE if left else CloseCode.SERVICE_RESTART, str(cause)
                case CallOver() | Stuck():
                    self.feed.reason = str(cause)
                    if isinstance(cause, Stuck):
                        failure, level = cause, logging.WARNING
                    return await self._say_goodbye(cause)
                case _:
                    failure = cause
                    self.feed.reason, detail = public_error(cause).message, str(cause) or type(cause).__name__
                    expected = isinstance(cause, PipelineError)  # its message is enough: no traceback
                    level, unexpected = (logging.WARNING, None) if expected else (logging.ERROR, error)
                    clients = isinstance(cause, Overloaded | ProtocolError)
                    code = CloseCode.POLICY_VIOLATION if clients else CloseCode.INTERNAL_ERROR
                    return code, self.feed.reason
        finally:
            self.feed.end()
            self._observers.end(failure, detail or self.feed.reason)
            self._recorder.end()
            if self._agent:
                self._agent.end(self.feed.reason, time.monotonic() - began)
            self.log.end(detail or self.feed.reason, level, unexpected)
        return 0, ""

    async def _converse(self) -> None:
        """Open the session and carry messages until the client leaves."""
        session: Session | None = None
        try:
            async with open_session(self._models, self._options) as session:
                self._observers.begin(session)
                self.pulse.begin(session)
                await self._carry_out(session, self._wire.open())
                async with asyncio.TaskGroup() as tasks:
                    working = [tasks.create_task(self._write_events(session))]
                    departing = self.departure.run(session, lambda: self._wire.playing)
                    working.append(tasks.create_task(departing, name="departure"))
                    if self._pace:
                        working.append(tasks.create_task(self._pace(lambda: self._messages), name="pace"))
                    if self._agent:
                        playing, report = (lambda: self._wire.playing), self._observers.take
                        hosting = self._agent.run(session, self._recorder, playing, report)
                        working.append(tasks.create_task(hosting, name="agent"))
                    recording = self._recorder.run(session, partial(self._tell, session))
                    working.append(tasks.create_task(recording, name="recorder"))
                    await self._read(session)
                    for task in working:
                        task.cancel()
        finally:
            if session is not None:  # log the end of a reply that the end of the call cut off
                for event in session.events.receive_nowait(session.events.size):
                    self._observe(event, session)

    async def _say_goodbye(self, error: PipelineError) -> tuple[int, str]:
        """Send the last messages of a call that the server ends; return the close code and the reason."""
        goodbye = self._wire.goodbye(str(error), public_error(error).code)
        try:
            await self._socket.send(goodbye.messages)
        except (Overloaded, Unsent):
            return 0, ""
        return CloseCode.INTERNAL_ERROR if isinstance(error, Stuck) else goodbye.code, goodbye.reason

    # --- from the client --------------------------------------------------------------------------------

    async def _read(self, session: Session) -> None:
        """Carry out the client's messages until its connection ends."""
        loop = asyncio.get_running_loop()
        self._began = self._last_active = loop.time()
        while True:
            self.pulse.taking_since = None
            came = await self._socket.receive()
            self.pulse.taking_since = time.monotonic()
            self._messages += len(came) if isinstance(came, list) else 1
            if isinstance(came, ConnectionChange):
                if not await self._outlast(session, came):
                    return
                continue
            if isinstance(came, Disconnected):
                self.feed.reason = came.farewell()
                return
            ends_in_audio = False
            for number, frame in enumerate(came, 1):
                answers = self._wire.receive(frame, number < len(came))
                await self._carry_out(session, answers)
                ends_in_audio = bool(answers) and isinstance(answers[-1], Hear | ReadMore)
                while answers and isinstance(answers[-1], ReadMore):
                    answers = self._wire.read_more()
                    self.pulse.taking_since = time.monotonic()  # a long message is no long wait
                    await self._carry_out(session, answers)
            if ends_in_audio:
                await asyncio.sleep(0)  # let the session take the audio,
                await asyncio.sleep(0)  # and let the VAD run it in one batch with other calls' audio
                if session.idle:
                    await self._wait_for_next_read(session.options)
                else:
                    self._last_active = loop.time()

    async def _wait_for_next_read(self, options: Options) -> None:
        """Wait until the next read time of a silent call, or a later one while other calls wait for a model.

        No read is skipped where silence or the call's length is limited: speech is read before the limit.
        """
        loop = asyncio.get_running_loop()
        since, limited = loop.time(), options.idle_s or options.max_call_s
        while True:
            await asyncio.sleep(until_next_read(loop.time(), self._began))
            others = self._models.load_shedder.pressing and not limited
            if not (others and may_skip_a_read(loop.time(), self._last_active, since)):
                return

    async def _outlast(self, session: Session, change: ConnectionChange) -> bool:
        """Take a change of the connection while the client is away; return whether the call goes on."""
        match change:
            case Lost(end, since, reason, seconds, empty):
                if empty and session.at_rest:
                    self.feed.reason = end.farewell()
                    return False
                self._played = session.hold(since)
                if reason:
                    self.log.lose(reason, seconds)
            case ClientAway(seconds):
                if session.user_has_floor:  # missing audio counts as silence, which ends the user's turn
                    silence = bytes(2 * int(seconds * RATE))
                    self._recorder.hear(silence)
                    await session.hear(silence)
            case Resumed(client, catch_up):
                self.log.come_back(client)
                await catch_up(self._played, session.release)
                self._began = self._last_active = asyncio.get_running_loop().time()
            case Gone(reason):
                self.feed.reason = reason
                return False
        return True

    # --- what the wire answers --------------------------------------------------------------------------

    async def _carry_out(self, session: Session, answers: Answers) -> None:
        """Carry out commands and send messages, in order; wait while a second of audio is unprocessed."""
        messages: list[Message] = []
        for answer in answers:
            if isinstance(answer, dict | str | bytes):
                messages.append(answer)
                continue
            if messages:
                await self._socket.send(messages)
                messages = []
            if isinstance(answer, Hear):
                if self._meter:
                    self._meter(len(answer.pcm) / 2 / RATE)
                self._recorder.hear(answer.pcm)
                await session.hear(answer.pcm)
            else:
                await self._execute(session, answer)
        if messages:
            await self._socket.send(messages)

    async def _execute(self, session: Session, command: Command) -> None:
        """Carry out one command, and what follows from its result."""
        match command:
            case EndTurn():
                await session.end_user_turn()
            case Forget():
                session.clear_audio()
            case AddText(role, text):
                session.add_text(text, role)
                self._note_typed(session, role, text)
            case AddItem(entry, after):
                session.insert(entry, after)
                if entry.role == "tool":
                    self._observers.take(ToolReturned(entry.call, "client", entry.text))
                self._note_typed(session, entry.role, entry.text)
            case Restore(entries):
                session.history.restore(entries)
            case AddRecording():
                result = await self._transcribe(session, command)
                self._observers.take(result)
                await self._carry_out(session, self._wire.handle(result))
            case Remove(key):
                session.remove(key)
            case Respond(request):
                if self._agent:
                    self._agent.respond(session, request)
                else:
                    session.respond(request)
            case Interrupt(out_of_band):
                session.interrupt(out_of_band)
            case Truncate(turn, seconds):
                heard = session.truncate(turn, seconds)
                if heard is not None:
                    self.feed.send_heard(turn, heard)
                self._observers.take(truncated := Truncated(turn, heard))
                await self._carry_out(session, self._wire.handle(truncated))
            case Configure(options):
                session.configure(self._agent.configured(options) if self._agent else options)
            case Record(begin, announce):
                self._recorder.ask(begin, announce)
            case Hear() | ReadMore():
                pass  # ``_carry_out`` and ``_read`` do these
            case HangUp(reason):
                raise HungUp(reason)

    async def _tell(self, session: Session, change: RecordingChange) -> None:
        await self._carry_out(session, self._wire.handle(change))

    async def _transcribe(self, session: Session, given: AddRecording) -> RecordingTranscribed:
        """Transcribe a recording. The client's next message waits: it may build on the words."""
        seconds = len(given.pcm) / 2 / RATE
        if self._meter:
            self._meter(seconds)
        try:
            text = await session.insert_audio(given.pcm, given.key, given.after)
        except PipelineError as error:
            public = reported(f"call {self.feed.id}", "an item's audio was not transcribed", error)
            return RecordingTranscribed(given.key, "", seconds, public.message)
        return RecordingTranscribed(given.key, text, seconds)

    # --- from the session -------------------------------------------------------------------------------

    async def _write_events(self, session: Session) -> None:
        """Send the client what follows from the session's events, until they end."""
        while True:
            self.pulse.writing_since = None
            try:
                async with asyncio.timeout(self._wire.flush_after):
                    event = await session.events.receive()
            except TimeoutError:
                self.pulse.writing_since = time.monotonic()
                await self._carry_out(session, self._wire.flush())
                continue
            except Closed:
                return
            self.pulse.writing_since = time.monotonic()
            self._last_active = asyncio.get_running_loop().time()
            if not isinstance(event, ReplyAudio):  # most observers read, they do not listen
                self.pulse.take(event)
                event = self._observe(event, session)
            else:
                self.pulse.owed_since = None
                if self._traces.is_open:
                    self._traces.note(event, self._last_active, session.received)
            if self._agent and self._agent.take(session, event):
                continue
            await self._carry_out(session, self._wire.handle(event))

    def _observe(self, event: Event, session: Session) -> Event:
        """Pass an event to the observers, the caption watchers, the log and the traces file, and return it.

        The end of a failed reply gets an error message for callers.
        """
        self._observers.take(event)
        self._recorder.take(event)
        self._traces.note(event, asyncio.get_running_loop().time(), session.received)
        if isinstance(event, ReplyDone) and event.status == "failed":
            cause = event.cause or PipelineError(event.error)
            public = reported(f"call {self.feed.id}", f"turn {event.turn} failed", cause)
            event = replace(event, error=public.message, code=public.code, cause=None)
        if self.feed.watchers:
            self.feed.send_event(event)
        if isinstance(event, ReplyStarted):
            self.log.turns += 1
        return event

    def _note_typed(self, session: Session, role: str, text: str) -> None:
        self._observers.take(AddText(role, text))
        if self._agent and role == "user":
            self._agent.typed(session, text)
        self.feed.send_typed(role, text)
        self._traces.typed(role, text)
