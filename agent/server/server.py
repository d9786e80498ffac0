"""The server's ports and endpoints: the page, calls of all kinds, text requests, and health checks."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketState

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.agent_call import AgentCall
from rejoinder.agent.app.call import CallInfo, RefusedCall
from rejoinder.agent.app.functions.mistakes import BrokenAgent
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.config import ConfigError, Settings, open_traces
from rejoinder.agent.server.absence import Absence
from rejoinder.agent.server.access import (
    SOCKETS,
    may_call,
    no_socket,
    not_there,
    refusal,
    refused,
    shown,
    turn_away,
    wants_socket,
)
from rejoinder.agent.server.conversations import Conversations
from rejoinder.agent.server.health import LOADING, READY, keep_looking, load
from rejoinder.agent.server.http.call_infos import http_info, phone_info
from rejoinder.agent.server.http.captions import Captions
from rejoinder.agent.server.http.client_secrets import mint
from rejoinder.agent.server.http.completions import Completions
from rejoinder.agent.server.keys import Keys
from rejoinder.agent.server.limits import AdmissionMiddleware, Allowance, Limits, own_allowances
from rejoinder.agent.wires.audiosocket.server import Line, listening
from rejoinder.agent.wires.call import Call
from rejoinder.agent.wires.call_log import caller, host
from rejoinder.agent.wires.call_log import refused as refused_call
from rejoinder.agent.wires.failures import ENDED
from rejoinder.agent.wires.names import known_as, names
from rejoinder.agent.wires.pcm.messages import flag_of
from rejoinder.agent.wires.pcm.protocol import Pcm
from rejoinder.agent.wires.phone.line import NotStarted, is_signed, pick_up
from rejoinder.agent.wires.phone.protocol import Phone
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
from rejoinder.agent.wires.wyoming.server import wyoming
from rejoinder.models.loading import Away, Report, open_models
from rejoinder.pipeline import Models, MonitoredLlm, Options, ProtocolError, ToolLlm, Tools
from rejoinder.pipeline.errors import first_error

log = logging.getLogger(__name__)

PAGE = Path(__file__).parent / "page"
"""The folder of the web page."""
TRY_AGAIN = "the models are still loading: try again in a few seconds"
"""The error message while the models still load."""


class Server:
    """The ASGI application, its models and its calls. The port answers while the models still load.

    report: called for each model that is ready. away: called for a remote model that does not answer yet.
    failed: called with the error that ends the program. agent: the integrator's. models: loaded ones; None to
    load those of the settings. Raises ConfigError where the traces file cannot be written.
    """

    def __init__(
        self,
        settings: Settings,
        report: Report,
        failed: Callable[[Exception], None],
        away: Away = lambda spec, error: None,
        agent: Agent | None = None,
        models: Models | None = None,
    ) -> None:
        self.settings = settings
        self._given = models
        self.host = AgentHost(agent or Agent())
        self.models: Models | None = None
        self.calls: set[Call] = set()
        self._answering = 0
        self.completions = Completions(
            lambda: self.models, self._refuse, settings.max_completions, names(settings.specs())
        )
        self.watching = Captions(lambda: [call.feed for call in self.calls], self._may_watch)
        self._keys = Keys([one.partition(":")[0] for one in settings.api_keys.split()], time.time)
        usual = Allowance(settings.key_sessions, settings.key_calls_per_min)
        self._limits = Limits(usual, own_allowances(settings.api_keys))
        self.conversations = Conversations(self.calls, self._keys, self._limits)
        self._report = report
        self._absence = Absence(away, report)
        self._failed = failed
        self._traces = open_traces(settings)

    def app(self) -> Starlette:
        """Return the ASGI application."""
        routes = [
            Route("/", self._index),
            Route("/healthz", self._health),
            Route("/readyz", self._ready),
            WebSocketRoute("/v1/realtime", self._realtime),
            Route("/v1/realtime/client_secrets", self._secret, methods=["POST"]),
            WebSocketRoute("/v1/phone", self._phone),
            *(Route(path, wants_socket, methods=["GET", "POST"]) for path in SOCKETS),
            WebSocketRoute("/v1/pcm", self._pcm),
            *self.completions.routes(),
            *self.watching.routes(),
            WebSocketRoute("/{path:path}", no_socket),
            Mount("/page", StaticFiles(directory=PAGE)),
        ]
        goes_on = self.conversations.goes_on
        limited = Middleware(
            AdmissionMiddleware, keys=self._keys, limits=self._limits, goes_on=goes_on, busy=self._busy
        )
        handlers = dict.fromkeys((404, 405), not_there)
        return Starlette(False, routes, [limited], handlers, lifespan=lambda app: self.running())

    def end_streams(self) -> None:
        """End all HTTP streams, because the server ends. Calls with a socket end by themselves."""
        self.completions.end()
        self.conversations.end_waiting()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take calls for the length of the block; at its end, or when it is cancelled, all calls end."""
        async with AsyncExitStack() as stack:
            port = self.settings.audiosocket_port
            asterisk = listening(self.settings.host, port, self._audiosocket, self._failed)
            home = wyoming(self.settings, lambda: self.models, self._failed, self.host)
            try:
                await stack.enter_async_context(self.host.running())
                if self._given:
                    self._begin(self._given)
            except (BrokenAgent, ConfigError) as error:
                self._failed(error)
            loading = asyncio.create_task(self._load(stack), name="load-models")
            try:
                async with asterisk, home:  # their calls end before the models are closed
                    yield
            finally:
                await self.conversations.aclose()
                await self.host.aclose()
                loading.cancel()
                await asyncio.wait([loading])
                if self._traces is not None:
                    self._traces.close()

    async def _load(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        try:
            if self.models is None:
                opened = open_models(
                    settings.specs(),
                    settings.threads(),
                    self._report,
                    settings.placement(),
                    self._absence.begin,
                )
                self._begin(await stack.enter_async_context(opened))
                # The objects of the models stay: a garbage collection that visits them would delay all calls.
                gc.collect()
                gc.freeze()
            assert self.models is not None
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(keep_looking(self.models.load_shedder), name="ladder")
                tasks.create_task(self._absence.end(self.models.llm), name="absence")
        except Exception as error:
            first = first_error(error)
            self._failed(first if isinstance(first, Exception) else error)

    def _begin(self, models: Models) -> None:
        """Take calls with these models. Raises ConfigError if they do not fit the agent."""
        self.host.check(models.llm)
        self.models = models

    async def _index(self, request: Request) -> Response:
        return FileResponse(PAGE / "index.html")

    async def _health(self, request: Request) -> Response:
        known = {"status": "ok", "sessions": len(self.calls)}
        return JSONResponse({**known, "load": load(self.models.load_shedder)} if self.models else known)

    async def _ready(self, request: Request) -> Response:
        missing = (ENDED if self._failed_model() else "") or self._absence.reason
        status = LOADING if self.models is None else missing or READY
        return JSONResponse({"status": status}, status_code=200 if status == READY else 503)

    async def _secret(self, request: Request) -> Response:
        if refused := self._refuse(request):
            return refused
        if self.models is None:
            return refusal(503, "the models are still loading", "loading", retry=2)
        return await mint(request, self._keys, self._wire(self._options()))

    def _options(self) -> Options:
        return self.host.options(self.settings.options())

    def _wire(self, options: Options, model: str = "default", trace: bool = False) -> Realtime:
        can_call = self.models is not None and isinstance(self.models.llm, ToolLlm)
        return Realtime(options, model, trace, can_call, known_as(self.settings.tts))

    async def _realtime(self, websocket: WebSocket) -> None:
        """Run one call of a client of the Realtime protocol."""
        key = shown(websocket.scope)
        session, query = self._keys.session(key), websocket.query_params
        back = ResumeRequest.of(query)
        known = self.conversations.find(back.conversation, key)
        if not await self._accept(websocket, "realtime", session is not None or known is not None):
            return
        lease = SocketLease(websocket)
        if known:
            known.take(lease, back)
            ended = await lease.ended
            if ended == JUST_ENDED:
                refused_call(websocket.url.path, websocket.client, ended[1])
            await hang_up(websocket, *ended)
            return
        try:
            options = replace(self._options(), holds_audio=flag_of(query, "hold"))
            wire = self._wire(options, query.get("model", "default"), flag_of(query, "trace"))
        except ProtocolError as error:
            await turn_away(websocket, POLICY_VIOLATION, str(error))
            return
        wire.wanted = back.conversation
        if self.models is None or not await self._is_free(websocket):
            return
        try:
            agent = await self._answer(http_info(websocket, wire), wire, options)
        except RefusedCall as refused:
            await turn_away(websocket, POLICY_VIOLATION, str(refused))
            return
        if session:
            wire.prepare(session)
        socket = ResumableSocket(lease, wire, self.settings.resume_s)
        who = caller(websocket.client, self._keys.owner(key))
        call = Call(socket, self.models, wire.options(), wire, self._traces, who, agent)
        await hang_up(websocket, *await self.conversations.begin(call, socket, lease, key))

    async def _phone(self, websocket: WebSocket) -> None:
        """Run one call of any telephone carrier."""
        token = self.settings.twilio_auth_token.get_secret_value()
        if token and not is_signed(token, self.settings.public_url, websocket):
            reason = "X-Twilio-Signature does not fit; see the settings twilio_auth_token and public_url\n"
            await websocket.send_denial_response(PlainTextResponse(reason, status_code=403))
            return
        key = shown(websocket.scope)
        known = bool(token) or self._keys.session(key) is not None
        if not await self._accept(websocket, "media", known):
            return
        try:
            phone = Phone(await pick_up(websocket), self._options())
        except NotStarted as error:
            if websocket.client_state is WebSocketState.CONNECTED:
                await turn_away(websocket, POLICY_VIOLATION, str(error))
            else:
                log.info("no call to /v1/phone: %s (%s)", error, host(websocket.client))
            return
        who = caller(websocket.client, self._keys.owner(key), phone.number)
        await self._hold(websocket, phone, phone.options, who, phone_info(phone, http_info(websocket, phone)))

    async def _pcm(self, websocket: WebSocket) -> None:
        """Run one call of a device or a script that sends raw PCM."""
        key = shown(websocket.scope)
        session = self._keys.session(key)
        if not await self._accept(websocket, "pcm", session is not None):
            return
        options = self._options()
        if session:
            begun = self._wire(options)
            begun.prepare(session)
            options = replace(begun.options(), tools=Tools())  # this wire cannot return tool results
        try:
            wire = Pcm.of(options, websocket.query_params)
        except ProtocolError as error:
            await turn_away(websocket, POLICY_VIOLATION, str(error))
            return
        who = caller(websocket.client, self._keys.owner(key))
        await self._hold(websocket, wire, wire.options, who, http_info(websocket, wire))

    async def _audiosocket(self, line: Line) -> None:
        """Run one call of Asterisk's AudioSocket. Raises ProtocolError."""
        phone = Phone(await line.start(), self._options())
        who = caller(line.client, "", phone.number)
        await self._hold(line, phone, phone.options, who, phone_info(phone, CallInfo(phone.id, phone.name)))

    def _refuse(self, request: HTTPConnection) -> Response | None:
        return refused(request, self._keys, self._welcome)

    def _may_watch(self, request: HTTPConnection) -> Response | None:
        """Return the refusal of a client that may not read captions. Without keys, only this machine may."""
        if not self._keys.needed and not self.settings.local:
            reason = "captions of calls can be read on this machine only, unless api_keys is set"
            return refusal(403, reason)
        return self._refuse(request)

    def _welcome(self, origin: str | None, host: str) -> bool:
        allowed = self.settings.allowed_origins.split()
        return may_call(origin, host, allowed, self.settings.local)

    async def _accept(self, websocket: WebSocket, subprotocol: str, known: bool) -> bool:
        """Accept a WebSocket, or refuse it; return whether the call may begin.

        While the models load, the WebSocket is accepted and then closed, so that the client gets the reason.
        subprotocol: chosen if the client offers it. known: whether the client's key is valid, if one is
        needed.
        """
        origin, host = websocket.headers.get("origin"), websocket.headers.get("host", "")
        if not self._welcome(origin, host):
            reason = f"pages from {origin} may not call; see the setting allowed_origins\n"
            await websocket.send_denial_response(PlainTextResponse(reason, status_code=403))
            return False
        if not known:
            reason = f"{self._keys.wrong(shown(websocket.scope))}\n"
            await websocket.send_denial_response(PlainTextResponse(reason, status_code=401))
            return False
        offered = websocket.scope.get("subprotocols", [])
        await websocket.accept(subprotocol=subprotocol if subprotocol in offered else None)
        if self.models is None:
            await turn_away(websocket, TRY_AGAIN_LATER, TRY_AGAIN)
        return self.models is not None

    async def _answer(self, info: CallInfo, wire: Wire, options: Options) -> AgentCall | None:
        """Run the agent's hooks before a call, whose line is taken meanwhile. Raises RefusedCall."""
        self._answering += 1
        try:
            agent = await self.host.answer(info, options)
        finally:
            self._answering -= 1
        if agent:
            wire.adopt(agent.call.options)
        return agent

    async def _hold(self, websocket: Socket, wire: Wire, options: Options, who: str, info: CallInfo) -> None:
        """Run one call, if the models are loaded, a line is free and the agent does not refuse it."""
        if self.models is None:
            await turn_away(websocket, TRY_AGAIN_LATER, TRY_AGAIN)
            return
        if not await self._is_free(websocket):
            return
        try:
            agent = await self._answer(info, wire, options)
        except RefusedCall as refused:
            await turn_away(websocket, POLICY_VIOLATION, str(refused))
            return
        options = agent.call.options if agent else options
        call = Call(PlainSocket(websocket), self.models, options, wire, self._traces, who, agent)
        self.calls.add(call)
        try:
            code, reason = await call.run()
        finally:
            self.calls.discard(call)
        await hang_up(websocket, code, reason)

    async def _is_free(self, websocket: Socket) -> bool:
        """Return whether a line is free or can be freed; if not, close the socket with the reason."""
        reason = self._busy()  # first: no kept conversation ends for a call that is refused anyway
        full = len(self.calls) + self._answering >= self.settings.max_sessions
        if not reason and full and not self.conversations.make_way():
            reason = f"all {self.settings.max_sessions} lines are busy"
        if reason:
            await turn_away(websocket, TRY_AGAIN_LATER, reason)
        return not reason

    def _failed_model(self) -> str:
        llm = self.models.llm if self.models else None
        return llm.failed if isinstance(llm, MonitoredLlm) else ""

    def _busy(self) -> str:
        if failed := self._failed_model():
            log.warning("no calls are taken: %s", failed)
            return f"{ENDED}: the server has to be started anew"
        return self.models.load_shedder.refuse(asyncio.get_running_loop().time()) if self.models else ""
