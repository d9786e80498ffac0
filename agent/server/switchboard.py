"""Takes the calls of a server on all wires: it checks who calls, finds a free line, and asks the agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.websockets import WebSocket

from rejoinder.agent.app.agent_call import AgentCall
from rejoinder.agent.app.call import CallInfo, RefusedCall
from rejoinder.agent.app.hosting import Hosting
from rejoinder.agent.app.rehearsal import learn
from rejoinder.agent.config import Settings
from rejoinder.agent.metrics.telemetry import Telemetry
from rejoinder.agent.model_names import known_as
from rejoinder.agent.recording.recordings import Recordings
from rejoinder.agent.server.access import shown
from rejoinder.agent.server.calls.book import CallBook
from rejoinder.agent.server.conversations import ActiveCall, Conversations
from rejoinder.agent.server.denial import Denial
from rejoinder.agent.server.health import away, ended
from rejoinder.agent.server.http.call_infos import http_info, phone_info
from rejoinder.agent.server.journal.journal import Found, Journal
from rejoinder.agent.server.keys import Keys, hashed
from rejoinder.agent.server.limiting.limiter import Limiter
from rejoinder.agent.server.limiting.pace import keep_pace
from rejoinder.agent.server.operating.admission import TRY_AGAIN, Admission, accept
from rejoinder.agent.server.operating.draining import Drain
from rejoinder.agent.server.operating.lines import Lines
from rejoinder.agent.server.recording import recorder_of
from rejoinder.agent.trace_file import TraceFile
from rejoinder.agent.wires.audiosocket.server import Line
from rejoinder.agent.wires.call import Call
from rejoinder.agent.wires.call_log import Address, LoggedCaller, caller, host, log_refused
from rejoinder.agent.wires.failures import ENDED
from rejoinder.agent.wires.observer import CallObserver
from rejoinder.agent.wires.pcm.messages import flag_of
from rejoinder.agent.wires.pcm.protocol import Pcm
from rejoinder.agent.wires.phone.line import is_signed, pick_up
from rejoinder.agent.wires.phone.protocol import Phone
from rejoinder.agent.wires.realtime.events import new_conversation
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.resumable_socket import JUST_ENDED, ResumableSocket, SocketLease
from rejoinder.agent.wires.realtime.resuming import ResumeRequest
from rejoinder.agent.wires.transport import Transport, WebSocketTransport, hang_up
from rejoinder.agent.wires.wire import Wire
from rejoinder.models.caching.cache import SemanticCache
from rejoinder.pipeline import (
    Budgets,
    Guard,
    Models,
    Options,
    Overloaded,
    ProtocolError,
    ToolLlm,
    Tools,
)
from rejoinder.pipeline.engines import call_id
from rejoinder.pipeline.errors import HungUp

log = logging.getLogger(__name__)


class Switchboard:
    """The calls of a server. hosting: of the agent. traces: the open traces file, None for none.

    telemetry: what measures and traces the calls. book: what keeps what is said in them. recordings: of their
    sound, None for none. drain: of the server. answers: that may be used again, None for none. guard: of the
    settings, which an agent's own replaces; None for none. journal: keeps conversations for other processes,
    None for none. budgets: of the calls, None for none. trouble: returns why no call can be answered.
    models: None while they load. admission: accepts calls. calls: those in progress. conversations: those of
    clients that may resume theirs.
    """

    def __init__(
        self,
        settings: Settings,
        keys: Keys,
        limiter: Limiter,
        hosting: Hosting,
        traces: TraceFile | None,
        telemetry: Telemetry,
        book: CallBook,
        drain: Drain,
        recordings: Recordings | None = None,
        answers: SemanticCache | None = None,
        guard: Guard | None = None,
        journal: Journal | None = None,
        budgets: Budgets | None = None,
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        self.models: Models | None = None
        self.calls: set[Call] = set()
        self.conversations = Conversations(self.calls, keys, limiter, journal)
        self._lines = Lines(settings.max_sessions, self.calls, self.conversations.make_way)
        self._drain = drain
        self.admission = Admission(settings, keys, limiter, self._lines, self.closed)
        self._settings = settings
        self._keys = keys
        self._limiter = limiter
        self._pace = partial(keep_pace, settings.max_messages_per_s, settings.max_silent_s)
        self._hosting = hosting
        self._traces = traces
        self._telemetry = telemetry
        self._book = book
        self._recordings = recordings
        self._answers = answers
        self._guard = guard
        self._budgets = budgets
        self._trouble = trouble

    def options(self, owner: str = "", client: Address = None, phone: bool = False) -> Options:
        """Return the options of a session with the agent that takes new calls.

        owner: the hash of the API key that the session counts for, "" for none. client: its address, None for
        one that does not count. phone: whether it is a telephone call.
        """
        given = replace(self._settings.options(phone=phone), guard=self._guard)
        options = self._hosting.current.options(given)
        cache = self._answers.of(owner) if self._answers else None
        address = self._limiter.address(client[0] if client else "")
        budget = self._budgets.of(owner, address) if self._budgets else None
        return replace(options, key=owner, cache=cache, budget=budget)

    def wire(
        self,
        options: Options,
        model: str = "default",
        trace: bool = False,
        conversation: str = "",
        session: str = "",
    ) -> Realtime:
        """Return the wire of a Realtime client's call.

        model: the name that the client asked for. conversation, session: their ids, "" for new ones.
        """
        can_call = self.models is not None and isinstance(self.models.llm, ToolLlm)
        voice = known_as(self._settings.tts)
        return Realtime(options, model, trace, can_call, voice, conversation, session)

    async def realtime(self, websocket: WebSocket) -> None:
        """Run one call of a client of the Realtime protocol; cancelling leaves it to ``conversations``."""
        if denial := self.admission.stranger(websocket):  # before the stores are read
            await denial.send(websocket)
            return
        key, back = shown(websocket.scope), ResumeRequest.of(websocket.query_params)
        known = await self.admission.known(websocket)
        if call := self.conversations.find(back.conversation, key):
            again = WebSocketTransport(websocket)
            await accept(websocket, "realtime", call.conversation)
            again.traffic = self._telemetry.traffic("realtime")
            await _resume(call, SocketLease(again), back)
            return
        found = await self.conversations.find_elsewhere(back.conversation, key)
        session, owner = self._keys.session(key), found.owner if found else self._keys.owner(key)
        owners = self.admission.owners(websocket, owner)
        id_ = back.conversation if found else new_conversation()
        async with self.admission.accepted(
            websocket, "realtime", True if found else known, owners, id_, moved=found is not None
        ) as transport:
            if transport and (begun := self.conversations.find(back.conversation, key)):
                self.admission.begun(transport)
                await _resume(begun, SocketLease(transport), back)  # it came twice, and the other was faster
            elif transport:
                await self._converse(websocket, transport, session, owner, owners, id_, found, back)

    async def _converse(
        self,
        websocket: WebSocket,
        transport: WebSocketTransport,
        session: dict[str, Any] | None,
        owner: str,
        owners: Sequence[str],
        id_: str,
        found: Found | None,
        back: ResumeRequest,
    ) -> None:
        """Run a conversation, until it releases its first socket.

        session: the session object of the client's key, empty for none, None where the key is not valid.
        owner: the hash of the API key that it counts for. owners: whose limits. id_: of the conversation.
        """
        key, query = shown(websocket.scope), found.query if found else dict(websocket.query_params)
        options = replace(self.options(owner, transport.client), holds_audio=flag_of(query, "hold"))
        model, trace = query.get("model", "default"), flag_of(query, "trace")
        wire = self.wire(options, model, trace, id_, found.session if found else "")
        info = http_info(websocket, wire, query)
        agent = await self._answer(transport, info, wire, options, greets=found is None)
        try:
            if found and (begun := self.conversations.find(back.conversation, key)):
                self.admission.begun(transport)
                lease = SocketLease(transport)  # the client came twice, and its other socket was faster
                await _resume(begun, lease, back)
                raise HungUp(JUST_ENDED[1])
            if found:  # not before: a server that cannot take the call leaves it to the one that has it
                found = await self._take_over(wire, found, back)
            else:
                wire.wanted = back.conversation
                if session:
                    wire.prepare(session)
            kept = self.conversations.record(wire, key, info.query, found)
            lease = SocketLease(transport)
            socket = ResumableSocket(lease, wire, self._settings.resume_s, kept)
            who = caller(transport.client, owner)
            models, observers = self._models_of(agent), self._observers(transport, info)
            recorder = recorder_of(self._recordings, info)
        except BaseException as error:
            if agent:
                agent.end(str(error), 0.0)
            if isinstance(error, HungUp):
                return
            raise
        if kept:
            observers.append(kept)
        if agent and kept:
            agent.recorded = kept.written
        limits = self._limiter.meter(owners), self._pace
        call = Call(
            socket, models, wire.options(), wire, self._traces, who, agent, observers, recorder, *limits
        )
        call.departure.speaks = kept is None  # else the caller goes on elsewhere, in mid-reply
        self.admission.begun(transport)
        begun_with = str(kept.about["shown"]) if kept else hashed(key)
        active = ActiveCall(call, socket, begun_with, owner, owners, kept)
        await hang_up(transport, *await self.conversations.begin(active, lease))

    async def _take_over(self, wire: Realtime, found: Found, back: ResumeRequest) -> Found:
        """Let a wire go on with a conversation of another process; return it as it is now.

        Raises Overloaded where another process was faster, and ProtocolError where it cannot go on here: then
        it ends, and the client gets a new one at its next attempt.
        """
        claimed = await self.conversations.claim(found)
        if claimed is None:
            raise Overloaded(JUST_ENDED[1])
        try:
            wire.restore(claimed.state, claimed.reply, back.item, back.played_ms)
        except (ProtocolError, LookupError, TypeError, ValueError) as error:
            log.warning("a conversation cannot go on: %s", error)
            self.conversations.drop(claimed)
            raise ProtocolError("the conversation cannot go on here: connect again for a new one") from None
        return claimed

    async def phone(self, websocket: WebSocket) -> None:
        """Run one call of any telephone carrier. Cancelling ends the call."""
        token = self._settings.twilio_auth_token.get_secret_value()
        if token and not is_signed(token, self._settings.public_url, websocket):
            reason = "X-Twilio-Signature does not fit; see the settings twilio_auth_token and public_url"
            await Denial(HTTPStatus.FORBIDDEN, reason).send(websocket)
            return
        key = shown(websocket.scope)
        known = True if token else await self.admission.known(websocket)
        owners = () if token else self.admission.owners(websocket)  # a carrier has few addresses
        async with self.admission.accepted(websocket, "media", known, owners) as transport:
            if not transport:
                return
            self._lines.release(transport)  # it is no call before its start message
            if carrier := await pick_up(transport):
                if self._drain.reason:  # the server may have begun to drain meanwhile
                    raise Overloaded(self._drain.reason)
                counted = None if token else transport.client
                phone = Phone(carrier, self.options(self._keys.owner(key), counted, phone=True))
                who = caller(transport.client, self._keys.owner(key), phone.number)
                info = phone_info(phone, http_info(websocket, phone))
                await self._hold(transport, phone, phone.options, who, info, owners)
            else:
                log.info(
                    "no call to %s: closed before its start (%s)", transport.where, host(transport.client)
                )

    async def pcm(self, websocket: WebSocket) -> None:
        """Run one call of a device or a script that sends raw PCM. Cancelling ends the call."""
        key = shown(websocket.scope)
        known = await self.admission.known(websocket)
        session, owners = self._keys.session(key), self.admission.owners(websocket)
        async with self.admission.accepted(websocket, "pcm", known, owners) as transport:
            if not transport:
                return
            options = self.options(self._keys.owner(key), transport.client)
            if session:
                begun = self.wire(options)
                begun.prepare(session)
                options = replace(begun.options(), tools=Tools())  # this wire cannot return tool results
            wire = Pcm.of(options, websocket.query_params)
            who = caller(transport.client, self._keys.owner(key))
            await self._hold(transport, wire, wire.options, who, http_info(websocket, wire), owners)

    async def audiosocket(self, line: Line) -> None:
        """Run one call of Asterisk's AudioSocket. Cancelling ends the call.

        Raises ProtocolError or Overloaded if it does not begin.
        """
        phone = Phone(await line.start(), self.options(phone=True))
        if reason := self.closed():
            raise Overloaded(reason)
        who = caller(line.client, "", phone.number)
        info = phone_info(phone, CallInfo(phone.id, phone.name))
        try:
            await self._hold(line, phone, phone.options, who, info)
        finally:
            self._lines.release(line)

    async def _answer(
        self, transport: Transport, info: CallInfo, wire: Wire, options: Options, greets: bool = True
    ) -> AgentCall | None:
        """Take a line for a call that has none, and run the agent's hooks before it.

        The line is to be released when the call begins, or does not. greets: False for a conversation that
        has begun elsewhere.

        Raises Overloaded if no line is free and none can be freed, and ProtocolError if the agent refuses.
        """
        call_id.current.set(info.id)
        if reason := self._lines.take(transport):
            raise Overloaded(reason)
        try:
            agent = await self._hosting.current.answer(info, options)
        except RefusedCall as refused:
            raise ProtocolError(str(refused)) from None
        if not greets:
            wire.adopt(replace(options, greeting=""))
        if agent:
            agent.call.greeting = agent.call.greeting if greets else ""
            wire.adopt(agent.call.options)
            learn(self._models_of(agent), agent.call.greeting)
        return agent

    def _models_of(self, agent: AgentCall | None) -> Models:
        name = agent.call.models if agent else ""
        models = self._hosting.current.variants[name] if name else self.models
        assert models is not None  # no call is answered before
        return models

    async def _hold(
        self,
        transport: Transport,
        wire: Wire,
        options: Options,
        who: LoggedCaller,
        info: CallInfo,
        owners: Sequence[str] = (),
    ) -> None:
        """Run one call. owners: whose limits it counts for. Raises what ``_answer`` raises."""
        agent = await self._answer(transport, info, wire, options)
        options = agent.call.options if agent else options
        models, observers = self._models_of(agent), self._observers(transport, info)
        recorder = recorder_of(self._recordings, info)
        limits = self._limiter.meter(owners), self._pace
        call = Call(transport, models, options, wire, self._traces, who, agent, observers, recorder, *limits)
        self.admission.begun(transport)
        self.calls.add(call)
        try:
            code, reason = await call.run()
        finally:
            self.calls.discard(call)
        await hang_up(transport, code, reason)

    def _observers(self, transport: Transport, info: CallInfo) -> list[CallObserver]:
        """Return what follows a new call, and count the messages of its connection."""
        transport.traffic = self._telemetry.traffic(info.wire)
        return [*self._telemetry.observe(info), *self._book.observe(info)]

    def closed(self) -> str:
        """Return why no new call is taken now, "" if calls are taken. Asked once for each call."""
        if self._drain.reason:
            return self._drain.reason
        if self.models is None:
            return TRY_AGAIN
        if self._settings.refuse_without_llm and (reason := away(self.models)):
            return reason
        if failed := ended(self.models):
            log.warning("no calls are taken: %s", failed)
            return f"{ENDED}: the server has to be started anew"
        if self._trouble():
            return self._trouble()
        return self.models.load_shedder.refuse(asyncio.get_running_loop().time())


async def _resume(call: ResumableSocket, lease: SocketLease, request: ResumeRequest) -> None:
    """Run the next socket of a call of this process, until the call releases it."""
    call.take(lease, request)
    ended, transport = await lease.ended, lease.transport
    if ended == JUST_ENDED:
        log_refused(transport.where, transport.client, ended[1])
    await hang_up(transport, *ended)
