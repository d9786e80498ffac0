"""Takes the calls of a server on all wires: it checks who calls, finds a free line, and asks the agent."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from http import HTTPStatus
from io import RawIOBase
from typing import Any

from starlette.websockets import WebSocket
from websockets.frames import CloseCode

from rejoinder.agent.app.agent_call import AgentCall
from rejoinder.agent.app.call import CallInfo, RefusedCall
from rejoinder.agent.app.hosting import Hosting
from rejoinder.agent.app.rehearsal import learn
from rejoinder.agent.config import Settings
from rejoinder.agent.metrics.telemetry import Telemetry
from rejoinder.agent.recording.recordings import Recordings
from rejoinder.agent.server.access import decline, may_call, shown
from rejoinder.agent.server.calls.book import CallBook
from rejoinder.agent.server.conversations import Conversations
from rejoinder.agent.server.denial import Denial
from rejoinder.agent.server.http.call_infos import http_info, phone_info
from rejoinder.agent.server.keys import Keys
from rejoinder.agent.server.limits import BUSY_SECONDS, Limits
from rejoinder.agent.server.recording import recorder_of
from rejoinder.agent.wires.audiosocket.server import Line
from rejoinder.agent.wires.call import Call
from rejoinder.agent.wires.call_log import LoggedCaller, caller, host, log_refused
from rejoinder.agent.wires.failures import ENDED
from rejoinder.agent.wires.names import known_as
from rejoinder.agent.wires.observer import CallObserver
from rejoinder.agent.wires.pcm.messages import flag_of
from rejoinder.agent.wires.pcm.protocol import Pcm
from rejoinder.agent.wires.phone.line import is_signed, pick_up
from rejoinder.agent.wires.phone.protocol import Phone
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.resumable_socket import JUST_ENDED, ResumableSocket, SocketLease
from rejoinder.agent.wires.realtime.resuming import ResumeRequest
from rejoinder.agent.wires.transport import Transport, WebSocketTransport, hang_up
from rejoinder.agent.wires.wire import Wire
from rejoinder.models.caching.cache import SemanticCache
from rejoinder.models.llm.failover.failover import Failover
from rejoinder.pipeline import Guard, Models, MonitoredLlm, Options, Overloaded, ProtocolError, ToolLlm, Tools
from rejoinder.pipeline.engines import call_id

log = logging.getLogger(__name__)

TRY_AGAIN = "the models are still loading: try again in a few seconds"
"""The error message while the models still load."""


class Switchboard:
    """The calls of a server. hosting: of the agent. traces: the open traces file, None for none.

    telemetry: what measures and traces the calls. book: what keeps what is said in them. recordings: of their
    sound, None for none. answers: that may be used again, None for none. guard: of the settings, which an
    agent's own replaces; None for none.
    models: None while they load. calls: those in progress. conversations: of clients that may resume theirs.
    """

    def __init__(
        self,
        settings: Settings,
        keys: Keys,
        limits: Limits,
        hosting: Hosting,
        traces: RawIOBase | None,
        telemetry: Telemetry,
        book: CallBook,
        recordings: Recordings | None = None,
        answers: SemanticCache | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.models: Models | None = None
        self.calls: set[Call] = set()
        self.conversations = Conversations(self.calls, keys, limits)
        self._settings = settings
        self._keys = keys
        self._limits = limits
        self._hosting = hosting
        self._traces = traces
        self._telemetry = telemetry
        self._book = book
        self._recordings = recordings
        self._answers = answers
        self._guard = guard
        self._budgets = settings.budget.budgets()
        self._answering = 0

    def options(self, key: str = "") -> Options:
        """Return the options of a session with the agent that takes new calls. key: that the client shows."""
        given = replace(self._settings.options(), guard=self._guard)
        options = self._hosting.current.options(given)
        owner = self._keys.owner(key)
        cache = self._answers.of(owner) if self._answers else None
        budget = self._budgets.of(owner) if self._budgets else None
        return replace(options, key=owner, cache=cache, budget=budget)

    def wire(self, options: Options, model: str = "default", trace: bool = False) -> Realtime:
        """Return the wire of a Realtime client's call. model: the name that the client asked for."""
        can_call = self.models is not None and isinstance(self.models.llm, ToolLlm)
        return Realtime(options, model, trace, can_call, known_as(self._settings.tts))

    async def realtime(self, websocket: WebSocket) -> None:
        """Run one call of a client of the Realtime protocol; cancelling leaves it to ``conversations``."""
        key = shown(websocket.scope)
        back = ResumeRequest.of(websocket.query_params)
        known = self.conversations.find(back.conversation, key)
        if known is None:
            session = self._keys.session(key)
            async with self._accepted(websocket, "realtime", session is not None) as transport:
                if transport:
                    await self._realtime(websocket, transport, session, back.conversation)
            return
        if denial := self._stranger(websocket):
            await denial.send(websocket)
            return
        transport = await _accept(websocket, "realtime")
        transport.traffic = self._telemetry.traffic("realtime")
        lease = SocketLease(transport)
        known.take(lease, back)
        ended = await lease.ended
        if ended == JUST_ENDED:
            log_refused(transport.where, transport.client, ended[1])
        await hang_up(transport, *ended)

    async def _realtime(
        self,
        websocket: WebSocket,
        transport: WebSocketTransport,
        session: dict[str, Any] | None,
        conversation: str,
    ) -> None:
        key, query = shown(websocket.scope), websocket.query_params
        options = replace(self.options(key), holds_audio=flag_of(query, "hold"))
        wire = self.wire(options, query.get("model", "default"), flag_of(query, "trace"))
        wire.wanted = conversation
        info = http_info(websocket, wire)
        agent = await self._answer(info, wire, options)
        if session:
            wire.prepare(session)
        lease = SocketLease(transport)
        socket = ResumableSocket(lease, wire, self._settings.resume_s)
        who = caller(transport.client, self._keys.owner(key))
        models, observers = self._models_of(agent), self._observers(transport, info)
        recorder = recorder_of(self._recordings, info)
        call = Call(socket, models, wire.options(), wire, self._traces, who, agent, observers, recorder)
        await hang_up(transport, *await self.conversations.begin(call, socket, lease, key))

    async def phone(self, websocket: WebSocket) -> None:
        """Run one call of any telephone carrier. Cancelling ends the call."""
        token = self._settings.twilio_auth_token.get_secret_value()
        if token and not is_signed(token, self._settings.public_url, websocket):
            reason = "X-Twilio-Signature does not fit; see the settings twilio_auth_token and public_url"
            await Denial(HTTPStatus.FORBIDDEN, reason).send(websocket)
            return
        key = shown(websocket.scope)
        known = bool(token) or self._keys.session(key) is not None
        async with self._accepted(websocket, "media", known) as transport:
            if not transport:
                return
            if carrier := await pick_up(transport):
                phone = Phone(carrier, self.options(key))
                who = caller(transport.client, self._keys.owner(key), phone.number)
                info = phone_info(phone, http_info(websocket, phone))
                await self._hold(transport, phone, phone.options, who, info)
            else:
                log.info(
                    "no call to %s: closed before its start (%s)", transport.where, host(transport.client)
                )

    async def pcm(self, websocket: WebSocket) -> None:
        """Run one call of a device or a script that sends raw PCM. Cancelling ends the call."""
        key = shown(websocket.scope)
        session = self._keys.session(key)
        async with self._accepted(websocket, "pcm", session is not None) as transport:
            if not transport:
                return
            options = self.options(key)
            if session:
                begun = self.wire(options)
                begun.prepare(session)
                options = replace(begun.options(), tools=Tools())  # this wire cannot return tool results
            wire = Pcm.of(options, websocket.query_params)
            who = caller(transport.client, self._keys.owner(key))
            await self._hold(transport, wire, wire.options, who, http_info(websocket, wire))

    async def audiosocket(self, line: Line) -> None:
        """Run one call of Asterisk's AudioSocket. Cancelling ends the call.

        Raises ProtocolError or Overloaded if it does not begin.
        """
        phone = Phone(await line.start(), self.options())
        if reason := self._not_now():
            raise Overloaded(reason)
        who = caller(line.client, "", phone.number)
        await self._hold(line, phone, phone.options, who, phone_info(phone, CallInfo(phone.id, phone.name)))

    def welcome(self, origin: str | None, host: str) -> bool:
        """Return whether pages of an origin may call this host."""
        allowed = self._settings.allowed_origins.split()
        return may_call(origin, host, allowed, self._settings.local)

    @asynccontextmanager
    async def _accepted(
        self, websocket: WebSocket, subprotocol: str, known: bool
    ) -> AsyncIterator[WebSocketTransport | None]:
        """Accept a WebSocket or refuse it, and yield its connection if the call may begin.

        The call counts for the length of the block. A ProtocolError or Overloaded that the block raises is
        the reason why it does not begin.

        Pages in a browser cannot read the status of a refusal: where the server takes no calls now, theirs is
        accepted, and then closed with the reason. While the models load, so is every call.

        subprotocol: chosen if the client offers it. known: whether the client's key is valid, if one is
        needed. Cancelling leaves the socket to the server, which drops it.
        """
        owner, denial = self._keys.owner(shown(websocket.scope)), self._stranger(websocket)
        if not denial and not known:
            denial = Denial(HTTPStatus.UNAUTHORIZED, self._keys.wrong(shown(websocket.scope)))
        reason = "" if denial else self._not_now()
        if reason and self.models is not None and "origin" not in websocket.headers:
            denial = Denial(HTTPStatus.SERVICE_UNAVAILABLE, reason, BUSY_SECONDS)
        if denial := denial or self._limits.begin(owner, time.monotonic()):
            await denial.send(websocket)
            yield None
            return
        try:
            transport = await _accept(websocket, subprotocol)
            if reason:
                await decline(transport, CloseCode.TRY_AGAIN_LATER, reason)
            try:
                yield None if reason else transport
            except ProtocolError as error:
                await decline(transport, CloseCode.POLICY_VIOLATION, str(error))
            except Overloaded as error:
                await decline(transport, CloseCode.TRY_AGAIN_LATER, str(error))
        finally:
            self._limits.end(owner)

    def _stranger(self, websocket: WebSocket) -> Denial | None:
        """Return the denial of a call from a page of another origin."""
        origin, host = websocket.headers.get("origin"), websocket.headers.get("host", "")
        if self.welcome(origin, host):
            return None
        reason = f"pages from {origin} may not call; see the setting allowed_origins"
        return Denial(HTTPStatus.FORBIDDEN, reason)

    async def _answer(self, info: CallInfo, wire: Wire, options: Options) -> AgentCall | None:
        """Take a line for a call, and run the agent's hooks before it.

        Raises Overloaded if no line is free and none can be freed, and ProtocolError if the agent refuses.
        """
        call_id.current.set(info.id)
        most = self._settings.max_sessions
        if len(self.calls) + self._answering >= most and not self.conversations.make_way():
            raise Overloaded(f"all {most} lines are busy")
        self._answering += 1
        try:
            agent = await self._hosting.current.answer(info, options)
        except RefusedCall as refused:
            raise ProtocolError(str(refused)) from None
        finally:
            self._answering -= 1
        if agent:
            wire.adopt(agent.call.options)
            learn(self._models_of(agent), agent.call.greeting)
        return agent

    def _models_of(self, agent: AgentCall | None) -> Models:
        name = agent.call.models if agent else ""
        models = self._hosting.current.variants[name] if name else self.models
        assert models is not None  # no call is answered before
        return models

    async def _hold(
        self, transport: Transport, wire: Wire, options: Options, who: LoggedCaller, info: CallInfo
    ) -> None:
        """Run one call. Raises what ``_answer`` raises."""
        agent = await self._answer(info, wire, options)
        options = agent.call.options if agent else options
        models, observers = self._models_of(agent), self._observers(transport, info)
        recorder = recorder_of(self._recordings, info)
        call = Call(transport, models, options, wire, self._traces, who, agent, observers, recorder)
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

    def failed_model(self) -> str:
        """Return why the language model can no longer answer, "" if it can."""
        llm = self.models.llm if self.models else None
        return llm.failed if isinstance(llm, MonitoredLlm) else ""

    def away(self) -> str:
        """Return that no language model answers for the moment, "" if one does or it is not known."""
        llm = self.models.llm if self.models else None
        return llm.away if isinstance(llm, Failover) else ""

    def _not_now(self) -> str:
        """Return why no new call is taken now, "" if calls are taken. Asked once for each call."""
        if self.models is None:
            return TRY_AGAIN
        if self._settings.refuse_without_llm and (away := self.away()):
            return away
        if failed := self.failed_model():
            log.warning("no calls are taken: %s", failed)
            return f"{ENDED}: the server has to be started anew"
        return self.models.load_shedder.refuse(asyncio.get_running_loop().time())


async def _accept(websocket: WebSocket, subprotocol: str) -> WebSocketTransport:
    offered = websocket.scope.get("subprotocols", [])
    await websocket.accept(subprotocol=subprotocol if subprotocol in offered else None)
    return WebSocketTransport(websocket)
