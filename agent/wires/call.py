"""One call: the client's connection, a session, and the protocol object between them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import MutableMapping
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.websockets import WebSocketDisconnect

from rejoinder.agent.app.agent_call import AgentCall
from rejoinder.agent.recording.recorder import AudioRecorder, NoRecorder
from rejoinder.agent.trace_file import TraceFile
from rejoinder.agent.wires.call_log import CallLog, LoggedCaller
from rejoinder.agent.wires.commands import (
    AddItem,
    AddRecording,
    AddText,
    CallRemoteTool,
    Command,
    Configure,
    EndTurn,
    Forget,
    HangUp,
    Hear,
    Interrupt,
    ListTools,
    ReadMore,
    Record,
    RecordingTranscribed,
    Remove,
    Respond,
    Restore,
    Result,
    Truncate,
    Truncated,
)
from rejoinder.agent.wires.failures import public_error, reported
from rejoinder.agent.wires.feed import Feed
from rejoinder.agent.wires.observer import CallObserver, NoObserver, SafeObserver
from rejoinder.agent.wires.operating.call_limits import CallLimits
from rejoinder.agent.wires.operating.departure import SHUTTING_DOWN, Departure, say_goodbye
from rejoinder.agent.wires.operating.reading_pace import wait_for_next_read
from rejoinder.agent.wires.remote_servers import RemoteServers, remote_servers
from rejoinder.agent.wires.silence import Silence
from rejoinder.agent.wires.socket import (
    BEHIND,
    CUT,
    INTERNAL_ERROR,
    NO_CODE,
    POLICY_VIOLATION,
    Away,
    CallSocket,
    ConnectionChange,
    Gone,
    Lost,
    Message,
    Resumed,
    farewell,
)
from rejoinder.agent.wires.traces import Traces
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
from rejoinder.pipeline.call_timer import TOO_LONG
from rejoinder.pipeline.engines import call_id
from rejoinder.pipeline.errors import first_error
from rejoinder.pipeline.replying.upstream import call_context


class WireCall:
    """Carries messages between a client and its session, in both directions at once.

    traces: the open traces file, None for none. caller: for the log, None for one of whom nothing is known.
    agent: the integrator's agent in this call, None for none. observer: follows the call. limits, recorder:
    None for none.
    """

    def __init__(
        self,
        socket: CallSocket,
        models: Models,
        options: Options,
        wire: Wire,
        traces: TraceFile | None,
        caller: LoggedCaller | None = None,
        agent: AgentCall | None = None,
        observer: CallObserver | None = None,
        limits: CallLimits | None = None,
        recorder: AudioRecorder | None = None,
    ) -> None:
        self.feed = Feed(wire.id, wire.name, time.time(), time.monotonic)
        self.log = CallLog(self.feed.id, wire.name, caller or LoggedCaller(), time.monotonic)
        self._socket = socket
        self._models = models
        options = agent.configured(options) if agent else options
        self._recorder = recorder or NoRecorder()
        self._options = self._recorder.deferring(options)
        self._agent = agent
        self._limits = limits or CallLimits()
        self._wire = wire
        self._silence = Silence()
        self._traces = Traces(traces, self.feed.id, self._silence)
        self._behind: deque[MutableMapping[str, Any]] = deque()
        self._began = self._last_active = 0.0
        self._played: tuple[int, float] | None = None
        self._remote: RemoteServers
        self.departure = Departure(wire)
        self._observer = SafeObserver(observer) if observer else NoObserver()
        if agent:
            agent.returned = self._observer.returned

    def end_if_silent(self) -> None:
        """End the call if its client has sent nothing for too long."""
        if reason := self._limits.too_silent(asyncio.get_running_loop().time()):
            self.departure.begin("", reason)

    async def run(self) -> tuple[int, str]:
        """Run the call until one side ends it; return a close code (0: already closed) and a reason.

        An error ends this call, with a reason, and no other call. Cancelling ends the call and everything it
        started.
        """
        detail, level, unexpected, fatal = "", logging.INFO, None, None
        call_id.current.set(self.log.id)
        self.log.begin()
        call_context.set(self._observer.traceparent)
        try:
            await self._converse()
        except asyncio.CancelledError:
            self.feed.reason = self.feed.reason or SHUTTING_DOWN
            raise
        except Exception as error:
            match cause := first_error(error):
                case WebSocketDisconnect():
                    pass
                case CallOver():
                    self.feed.reason = str(cause)
                    if self._agent and self.feed.reason.startswith(TOO_LONG):
                        await self._agent.hang_up_line()
                    return await say_goodbye(self._socket, self._wire, self.feed.reason)
                case _:
                    fatal = cause
                    self.feed.reason, detail = public_error(cause).message, str(cause) or type(cause).__name__
                    expected = isinstance(cause, PipelineError)  # its message is enough: no traceback
                    level, unexpected = (logging.WARNING, None) if expected else (logging.ERROR, error)
                    clients = isinstance(cause, Overloaded | ProtocolError)
                    return POLICY_VIOLATION if clients else INTERNAL_ERROR, self.feed.reason
        finally:
            self.feed.end()
            self._silence.hang_up(asyncio.get_running_loop().time())
            self.log.longest_silence = self._silence.longest
            self.log.end(detail or self.feed.reason, level, unexpected)
            self._observer.end(fatal, self.feed.reason)
            self._recorder.end()
            if self._agent:
                self._agent.end(self.feed.reason, self.log.seconds)
                llm = self._models.llm
                self._traces.keep(self._agent.call, getattr(llm, "name", type(llm).__name__))
        return 0, ""

    async def _converse(self) -> None:
        """Open the session and carry messages until the client leaves."""
        session: Session | None = None
        try:
            async with (
                open_session(self._models, self._options) as session,
                remote_servers(partial(self._take_result, session)) as self._remote,
            ):
                self._observer.begin(session)
                await self._carry_out(session, self._wire.open())
                async with asyncio.TaskGroup() as tasks:
                    working = [tasks.create_task(self._write_events(session))]
                    if self._agent:
                        working.append(tasks.create_task(self._agent.run(session), name="agent"))
                    recording = self._recorder.run(session, partial(self._take_result, session))
                    working.append(tasks.create_task(recording, name="recorder"))
                    with self.departure.possible(tasks, session):
                        await self._read(session)
                    for task in working:
                        task.cancel()
        finally:
            if session is not None:  # log the end of a reply that the end of the call cut off
                for event in session.events.receive_nowait(session.events.size):
                    self._observe(event)

    # --- from the client --------------------------------------------------------------------------------

    async def _read(self, session: Session) -> None:
        """Carry out the client's messages until its connection ends."""
        loop = asyncio.get_running_loop()
        self._began = self._last_active = loop.time()
        while True:
            message = self._behind.popleft() if self._behind else await self._socket.receive()
            if isinstance(message, ConnectionChange):
                if not await self._outlast(session, message):
                    return
                continue
            if message["type"] == "websocket.disconnect":
                self._note_end(message)
                return
            if self._limits.limited:
                self._limits.count(loop.time())
            if behind := message.get(BEHIND):
                self._behind.extend(behind())
            frame, more = message.get(CUT) or message.get("text"), bool(self._behind)
            frame = message["bytes"] if frame is None else frame
            self._observer.traffic.received += len(frame)
            answers = self._wire.receive(frame, more)
            await self._carry_out(session, answers)
            ends_in_audio = bool(answers) and isinstance(answers[-1], Hear | ReadMore)
            while answers and isinstance(answers[-1], ReadMore):
                answers = self._wire.read_more()
                await self._carry_out(session, answers)
            if ends_in_audio and not more:
                await asyncio.sleep(0)  # let the session take the audio,
                await asyncio.sleep(0)  # and let the VAD run it in one batch with other calls' audio
                if session.idle:
                    await wait_for_next_read(self._models, session.options, self._began, self._last_active)
                else:
                    self._last_active = loop.time()

    async def _outlast(self, session: Session, change: ConnectionChange) -> bool:
        """Take a change of the connection while the client is away; return whether the call goes on."""
        match change:
            case Lost(message, since, reason, seconds, empty):
                if empty and session.at_rest:
                    self._note_end(message)
                    return False
                self._played = session.hold(since)
                if reason:
                    self.log.lose(reason, seconds)
            case Away(seconds):
                if session.user_has_floor:  # missing audio counts as silence, which ends the user's turn
                    await session.hear(bytes(2 * int(seconds * RATE)))
            case Resumed(client, catch_up):
                self.log.come_back(client)
                await catch_up(self._played, session.release)
                self._began = self._last_active = asyncio.get_running_loop().time()
            case Gone(reason):
                self.feed.reason = reason
                return False
        return True

    def _note_end(self, message: MutableMapping[str, Any]) -> None:
        self.feed.reason = farewell(int(message.get("code") or NO_CODE), message.get("reason") or "")

    # --- what the wire answers --------------------------------------------------------------------------

    async def _carry_out(self, session: Session, answers: Answers) -> None:
        """Carry out commands and send messages, in order. Waits while a second of audio is unprocessed."""
        messages: list[Message] = []
        for answer in answers:
            if isinstance(answer, dict | str | bytes):
                messages.append(answer)
                continue
            if messages:
                await self._socket.send(messages)
                messages = []
            if isinstance(answer, Hear):
                self._limits.heard += len(answer.pcm) / 2 / RATE
                pcm = self._agent.hear(answer.pcm) if self._agent else answer.pcm
                self._recorder.hear(pcm)
                await session.hear(pcm)
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
                    self._observer.returned(entry.call, False, entry.text)
                self._note_typed(session, entry.role, entry.text)
            case Restore(entries):
                session.history.restore(entries)
            case AddRecording():
                result = await self._transcribe(session, command)
                self._observer.take(result)
                await self._carry_out(session, self._wire.handle(result))
            case Remove(key):
                session.remove(key)
            case Respond(request):
                session.respond(self._agent.request(request) if self._agent else request)
            case Interrupt(out_of_band):
                session.interrupt(out_of_band)
            case Truncate(turn, seconds):
                heard = session.truncate(turn, seconds)
                if heard is not None:
                    self.feed.send_heard(turn, heard)
                self._observer.take(truncated := Truncated(turn, heard))
                await self._carry_out(session, self._wire.handle(truncated))
            case Configure(options):
                session.configure((self._agent or self._recorder).configured(options))
            case ListTools():
                self._remote.list_tools(command)
            case CallRemoteTool():
                self._remote.call_tool(command)
            case Record(begin, announce):
                self._recorder.ask(begin, announce)
            case Hear() | ReadMore():
                pass  # ``_carry_out`` and ``_read`` do these
            case HangUp(reason):
                raise CallOver(reason)

    async def _take_result(self, session: Session, result: Result) -> None:
        await self._carry_out(session, self._wire.handle(result))

    async def _transcribe(self, session: Session, given: AddRecording) -> RecordingTranscribed:
        """Transcribe a recording. The client's next message waits: it may build on the words."""
        seconds = len(given.pcm) / 2 / RATE
        self._limits.spend(seconds)
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
            try:
                async with asyncio.timeout(self._wire.flush_after):
                    event = await session.events.receive()
            except TimeoutError:
                await self._carry_out(session, self._wire.flush())
                continue
            except Closed:
                return
            self._last_active = asyncio.get_running_loop().time()
            if isinstance(event, ReplyAudio):  # observers read, they do not listen
                self._silence.audio.append((self._last_active, event.chunk))
                self._observer.traffic.spoken += len(event.chunk.pcm) / event.chunk.rate / 2  # of 16 bits
            else:
                self._silence.take(event, self._last_active, session.received)
                event = self._observe(event)
                if self._agent and self._agent.take(session, event):
                    continue
            await self._carry_out(session, self._wire.handle(event))
            if isinstance(event, ReplyDone) and (reason := self._limits.used_up()):
                raise Overloaded(reason)

    def _observe(self, event: Event) -> Event:
        """Pass an event to the caption watchers, the log and the traces file, and return it.

        The end of a failed reply gets an error message for callers.
        """
        self._observer.take(event)
        self._limits.take(event)
        self._recorder.take(event)
        if isinstance(event, ReplyDone) and event.status == "failed":
            cause = event.cause or PipelineError(event.error)
            public = reported(f"call {self.feed.id}", f"turn {event.turn} failed", cause)
            event = replace(event, error=public.message, code=public.code, cause=None)
        if self.feed.watchers:
            self.feed.send_event(event)
        self._traces.note(event)
        if isinstance(event, ReplyStarted):
            self.log.turns += 1
        return event

    def _note_typed(self, session: Session, role: str, text: str) -> None:
        if self._agent and role == "user":
            self._agent.typed(session, text)
        self.feed.send_typed(role, text)
        self._traces.typed(role, text)
        self._observer.take(AddText(role, text))
