"""Takes the calls of all wires: accepts or refuses a socket, asks the agent, and runs the call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket, WebSocketState

from rejoinder.agent.app.agent_call import AgentCall
from rejoinder.agent.app.call import CallInfo, RefusedCall
from rejoinder.agent.app.hosting import Hosting
from rejoinder.agent.app.rehearsal import learn
from rejoinder.agent.config import Settings
from rejoinder.agent.recording.recordings import Recordings
from rejoinder.agent.server.access import admits_page, may_call, shown, turn_away
from rejoinder.agent.server.conversations import Conversations, resume
from rejoinder.agent.server.health import failed_model
from rejoinder.agent.server.http.call_infos import carrier_info, http_info, socket_id
from rejoinder.agent.server.journal.journal import Found, Journal
from rejoinder.agent.server.journal.restored import opened
from rejoinder.agent.server.keys import Keys
from rejoinder.agent.server.limiting.admission import CallAdmission
from rejoinder.agent.server.limiting.limits import call_limits
from rejoinder.agent.server.operating.addresses import client_group, networks
from rejoinder.agent.server.operating.draining import Drain
from rejoinder.agent.server.recording import recorder_of
from rejoinder.agent.trace_file import TraceFile
from rejoinder.agent.wires.audiosocket.server import Line
from rejoinder.agent.wires.call import WireCall
from rejoinder.agent.wires.call_log import LoggedCaller, caller, host
from rejoinder.agent.wires.failures import ENGINE_ENDED_MESSAGE
from rejoinder.agent.wires.ids import new_id
from rejoinder.agent.wires.names import known_as
from rejoinder.agent.wires.observer import CallObserver
from rejoinder.agent.wires.pcm.messages import flag_of
from rejoinder.agent.wires.pcm.protocol import Pcm
from rejoinder.agent.wires.phone.carrier import Carrier
from rejoinder.agent.wires.phone.control.controls import Controls
from rejoinder.agent.wires.phone.line import NotStarted, is_signed, pick_up
from rejoinder.agent.wires.phone.protocol import Phone
from rejoinder.agent.wires.realtime.control import ClientControl
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.resumable_socket import JUST_ENDED, ResumableSocket, SocketLease
from rejoinder.agent.wires.realtime.resuming import ResumeRequest
from rejoinder.agent.wires.socket import (
    POLICY_VIOLATION,
    TRY_AGAIN_LATER,
    PlainSocket,
    Socket,
    hang_up,
)
from rejoinder.agent.wires.wire import Wire
from rejoinder.models.caching.cache import SemanticCache
from rejoinder.pipeline import Models, Options, ProtocolError, ToolLlm, Tools
from rejoinder.pipeline.engines import call_id

log = logging.getLogger(__name__)

TRY_AGAIN = "the models are still loading: try again in a few seconds"
"""The error message while the models still load."""
Answered = tuple[Options, Models, AgentCall | None]
"""The options of a call's session, its models, and the agent in the call, None for none."""


class Switchboard:
    """Takes calls and runs them.

    models: returns the models, None while they load. admission: counts calls.
    traces: the open traces file, None for none. hosting: the agent, if there is one. controls: of telephone
    calls. cache: of answers. drain: of the server. observe: returns what follows a call. trouble: returns why
    a model of this machine does not work. recordings: of calls. journal: keeps conversations for other
    processes. None for none of these. calls: those that run, also those whose clients are away.
    """

    def __init__(
        self,
        settings: Settings,
        models: Callable[[], Models | None],
        keys: Keys,
        admission: CallAdmission,
        traces: TraceFile | None,
        hosting: Hosting,
        controls: Controls,
        cache: SemanticCache | None,
        drain: Drain,
        observe: Callable[[CallInfo], CallObserver],
        trouble: Callable[[], str],
        recordings: Recordings | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.calls: set[WireCall] = set()
        self.conversations = Conversations(self.calls, keys, admission, journal)
        self._settings = settings
        self._models = models
        self._keys = keys
        self._admission = admission
        self._exempt = networks(settings.address_exempt)
        self._traces = traces
        self._hosting = hosting
        self._controls = controls
        self._cache = cache
        self._drain = drain
        self._observe = observe
        self._trouble = trouble
        self._recordings = recordings
        self._answering = 0
        self._failed = ""

    @property
    def answering(self) -> bool:
        """Whether the agent decides about a call that has not begun."""
        return self._answering > 0

    def busy(self) -> str:
        """Return why no call can be taken now, "" if one can."""
        if self._drain.reason:
            return self._drain.reason
        models = self._models()
        if failed := failed_model(models):
            if failed != self._failed:  # once: each refused call has a line of its own
                log.error("no calls are taken: %s", failed)
            self._failed = failed
            return f"{ENGINE_ENDED_MESSAGE}: restart the server"
        if trouble := self._trouble():
            return trouble
        return models.load_shedder.refuse(asyncio.get_running_loop().time()) if models else ""

    def full(self) -> str:
        """Return that all lines are busy; "" if one is free, or a client is gone whose line can be freed."""
        busy = self._lines_taken() and not self.conversations.absent()
        return f"all {self._settings.max_sessions} lines are busy" if busy else ""

    def welcome(self, origin: str | None, host: str) -> bool:
        """Return whether a page from this origin may call. host: the request's Host header."""
        return may_call(origin, host, self._settings.allowed_origins.split(), self._settings.local)

    def wire(
        self,
        options: Options,
        model: str = "default",
        trace: bool = False,
        id_: str = "",
        conversation: str = "",
    ) -> Realtime:
        """Return the Realtime protocol's side of a conversation. conversation: its id, "" for a new one."""
        models = self._models()
        can_call = models is not None and isinstance(models.llm, ToolLlm)
        voice, allowed = known_as(self._settings.tts), self._settings.allowed_mcp_urls
        return Realtime(options, model, trace, can_call, voice, id_, allowed, conversation)

    # --- one call of each wire --------------------------------------------------------------------------

    async def realtime(self, websocket: WebSocket) -> None:
        """Run one call of a Realtime client, or the next socket of one. Cancelling ends the socket."""
        if not await admits_page(websocket, self.welcome):  # before the store is read
            return
        key = shown(websocket.scope)
        session, owner = self._keys.session(key), self._keys.owner(key)
        back = ResumeRequest.of(websocket.query_params)
        if known := self.conversations.find(back.conversation, key):
            if await self._accept(websocket, "realtime", True):
                await resume(websocket, known, back)
            return
        found = await self.conversations.find_elsewhere(back.conversation, key)
        # The secret may have expired, or another process knows it: then the middleware has counted no key.
        uncounted = found.owner if found and found.owner != owner else ""
        if refused := await self._admission.begin(uncounted, ""):
            headers = {"Retry-After": str(refused.seconds)}
            answer = PlainTextResponse(f"{refused.reason}\n", refused.status, headers)
            await websocket.send_denial_response(answer)
            return
        try:
            if await self._accept(websocket, "realtime", session is not None or found is not None):
                await self._converse(websocket, session, uncounted or owner, found, back)
        finally:
            self._admission.end(uncounted, "")

    async def _converse(
        self,
        websocket: WebSocket,
        session: dict[str, Any] | None,
        owner: str,
        found: Found | None,
        back: ResumeRequest,
    ) -> None:
        """Run a conversation that is new here, until it releases its first socket."""
        key, lease = shown(websocket.scope), SocketLease(websocket)
        query = found.query if found else dict(websocket.query_params)
        try:
            holds_audio, trace, acts = (flag_of(query, name) for name in ("hold", "trace", "actions"))
        except ProtocolError as error:
            await turn_away(websocket, POLICY_VIOLATION, str(error))
            return
        info = http_info(websocket, "realtime", found.session if found else socket_id(), query)
        if (answered := await self._answer(websocket, info, owner)) is None:
            return
        if found and (known := self.conversations.find(back.conversation, key)):
            await resume(websocket, known, back)  # it came twice, and the other one was faster
            return
        if found:  # not before: a server that cannot take the call leaves it to the one that has it
            with self._keeping_line():
                found = await self.conversations.claim(found)
            if found is None:
                await turn_away(websocket, *JUST_ENDED)
                return
        options, models, agent = answered
        new = partial(self.wire, model=query.get("model", "default"), trace=trace, id_=info.id)
        wire = opened(new, replace(options, holds_audio=holds_audio), session, found, back)
        if wire is None:
            await turn_away(websocket, POLICY_VIOLATION, self._keys.wrong(key))
            return
        observer = self._observe(info)
        kept = self.conversations.record(wire, observer, key, owner, info.query, found)
        socket = ResumableSocket(lease, wire, self._settings.resume_s, observer.traffic, kept)
        if agent and acts:
            agent.control = ClientControl(socket)
        if agent and kept:
            agent.recorded = kept.written
        who, limits = (
            caller(websocket.client, owner),
            call_limits(self._admission.keys, owner, self._settings),
        )
        recorder = recorder_of(self._recordings, info, agent)
        watching, options = kept or observer, wire.options()
        call = WireCall(socket, models, options, wire, self._traces, who, agent, watching, limits, recorder)
        address = client_group(websocket.scope, self._exempt)
        ended = await self.conversations.begin(call, socket, lease, key, owner, address, kept)
        await hang_up(websocket, *ended)

    async def phone(self, websocket: WebSocket) -> None:
        """Run one call of any telephone carrier. Cancelling ends it."""
        token = self._settings.twilio_auth_token.get_secret_value()
        if token and not is_signed(token, self._settings.public_url, websocket):
            reason = "X-Twilio-Signature is wrong: check the settings twilio_auth_token and public_url\n"
            await websocket.send_denial_response(PlainTextResponse(reason, status_code=403))
            return
        key = shown(websocket.scope)
        known, owner = bool(token) or self._keys.session(key) is not None, self._keys.owner(key)
        if not await self._accept(websocket, "media", known):
            return
        try:
            carrier = await pick_up(websocket)
        except NotStarted as error:
            if websocket.client_state is WebSocketState.CONNECTED:
                await turn_away(websocket, POLICY_VIOLATION, str(error))
            else:
                log.info("no call to /v1/phone: %s (%s)", error, host(websocket.client))
            return
        info = carrier_info(carrier, http_info(websocket, carrier.name, carrier.id))
        if answered := await self._answer(websocket, info, owner, carrier):
            options, models, agent = answered
            phone = self._phone(carrier, (options, models, agent))
            who = caller(websocket.client, owner, info.caller)
            await self._run(websocket, phone, (phone.options, models, agent), who, info, owner)

    async def pcm(self, websocket: WebSocket) -> None:
        """Run one call of a device or a script that sends raw PCM. Cancelling ends it."""
        key = shown(websocket.scope)
        session, owner = self._keys.session(key), self._keys.owner(key)
        if not await self._accept(websocket, "pcm", session is not None):
            return
        try:
            wire = Pcm.of(
                self._settings.options(), websocket.query_params, others=self._hosting.current is not None
            )
        except ProtocolError as error:
            await turn_away(websocket, POLICY_VIOLATION, str(error))
            return
        wire.id = socket_id()
        info = http_info(websocket, "pcm", wire.id)
        if (answered := await self._answer(websocket, info, owner)) is None:
            return
        options, models, agent = answered
        if session:
            begun = self.wire(options)
            begun.prepare(session)
            options = replace(begun.options(), tools=Tools())  # this wire cannot return tool results
        wire.options = replace(options, holds_audio=wire.options.holds_audio)
        who = caller(websocket.client, owner)
        await self._run(websocket, wire, (wire.options, models, agent), who, info, owner)

    async def audiosocket(self, line: Line) -> None:
        """Run one call of Asterisk's AudioSocket. Raises ProtocolError. Cancelling ends it."""
        call_id.current.set(new_id("call"))
        carrier = await line.start()
        info = carrier_info(carrier, CallInfo(carrier.id or call_id.current.get(), "AudioSocket"))
        if answered := await self._answer(line, info, carrier=carrier):
            options, models, agent = answered
            phone, who = Phone(carrier, options), caller(line.client, "", info.caller)
            await self._run(line, phone, (phone.options, models, agent), who, info)

    # --- what they share --------------------------------------------------------------------------------

    async def _accept(self, websocket: WebSocket, subprotocol: str, known: bool) -> bool:
        """Accept a WebSocket, or refuse it; return whether the call may begin.

        While the models load, the WebSocket is accepted and then closed, so that the client gets the reason.
        subprotocol: chosen if the client offers it. known: whether the client's key is valid, if one is
        needed.
        """
        if not await admits_page(websocket, self.welcome):
            return False
        if not known:
            reason = f"{self._keys.wrong(shown(websocket.scope))}\n"
            await websocket.send_denial_response(PlainTextResponse(reason, status_code=401))
            return False
        offered = websocket.scope.get("subprotocols", [])
        await websocket.accept(subprotocol=subprotocol if subprotocol in offered else None)
        if self._models() is None:
            await turn_away(websocket, TRY_AGAIN_LATER, TRY_AGAIN)
        return self._models() is not None

    async def _answer(
        self, websocket: Socket, info: CallInfo, owner: str = "", carrier: Carrier | None = None
    ) -> Answered | None:
        """Return what the agent decides about a call; None if the call is refused, whose socket is closed.

        owner: the hash of the caller's API key, "" for none. Calls of different keys share no cached answers.
        carrier: of a telephone call. If the agent refuses it, its line is ended, too.
        The call keeps its line only until the caller's next ``await``: begin it before.
        """
        reason, models = self._no_line(), self._models()
        if reason or models is None:
            await turn_away(websocket, TRY_AGAIN_LATER, reason or TRY_AGAIN)
            return None
        options = self._settings.options(phone=carrier is not None)
        options = replace(options, key=owner)
        if self._cache:
            options = replace(options, cache=self._cache.of(owner))
        if (host := self._hosting.current) is None:
            return options, models, None
        with self._keeping_line():
            try:
                agent = await host.answer(info, options)
            except RefusedCall as refused:
                if carrier:
                    await self._controls.refuse(carrier, websocket)
                await turn_away(websocket, POLICY_VIOLATION, str(refused))
                return None
        models = host.variants.get(agent.call.models, models)
        learn(models, agent.call)
        return agent.call.options, models, agent

    @contextmanager
    def _keeping_line(self) -> Iterator[None]:
        """Count a line for a call that has not begun."""
        self._answering += 1
        try:
            yield
        finally:
            self._answering -= 1

    def _no_line(self) -> str:
        """Return why there is no line for a call; "" if one is free, or was freed."""
        reason = self.busy() or self.full()
        if not reason and self._lines_taken():  # no kept conversation ends for a call that is refused
            self.conversations.make_way()
        return reason

    def _lines_taken(self) -> bool:
        return len(self.calls) + self._answering >= self._settings.max_sessions

    def _phone(self, carrier: Carrier, answered: Answered) -> Phone:
        """Return the wire of a telephone call, and give the agent the control of its line."""
        options, models, agent = answered
        phone = Phone(carrier, options)
        if agent:
            agent.control = self._controls.of(phone, models.tts)
        return phone

    async def _run(
        self,
        websocket: Socket,
        wire: Wire,
        answered: Answered,
        who: LoggedCaller,
        info: CallInfo,
        owner: str = "",
    ) -> None:
        """Run one call whose connection cannot come back. who: the caller, for the log."""
        (options, models, agent), observer = answered, self._observe(info)
        socket, limits = (
            PlainSocket(websocket, observer.traffic),
            call_limits(self._admission.keys, owner, self._settings),
        )
        recorder = recorder_of(self._recordings, info, agent)
        call = WireCall(socket, models, options, wire, self._traces, who, agent, observer, limits, recorder)
        self.calls.add(call)
        try:
            code, reason = await call.run()
        finally:
            self.calls.discard(call)
        await hang_up(websocket, code, reason)
