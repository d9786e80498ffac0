"""The server's ports and endpoints: the page, calls of all kinds, text requests, and health checks."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.functions.mistakes import BrokenAgent
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.hosting import Hosting
from rejoinder.agent.app.rehearsal import rehearse_apologies, rehearsed
from rejoinder.agent.app.reloading import follow
from rejoinder.agent.config import ConfigError, Settings, open_traces
from rejoinder.agent.metrics.requests import RequestCounter
from rejoinder.agent.metrics.telemetry import Telemetry
from rejoinder.agent.server.absence import Absence
from rejoinder.agent.server.access import (
    SOCKETS,
    no_socket,
    not_there,
    refusal,
    refused,
    shown,
    wants_socket,
)
from rejoinder.agent.server.answers import open_cache
from rejoinder.agent.server.calls.book import CallBook
from rejoinder.agent.server.calls.endpoints import CallEndpoints
from rejoinder.agent.server.calls.recordings import RecordingEndpoints
from rejoinder.agent.server.health import LOADING, READY, adjust_load_shedding, failed_model, load
from rejoinder.agent.server.http.captions import Captions
from rejoinder.agent.server.http.client_secrets import mint
from rejoinder.agent.server.http.completions import Completions
from rejoinder.agent.server.http.documents import document_routes
from rejoinder.agent.server.http.request_log import RequestLog
from rejoinder.agent.server.journal.opening import open_journal
from rejoinder.agent.server.keys import Keys
from rejoinder.agent.server.limiting.admission import open_admission
from rejoinder.agent.server.limiting.allowance import own_allowances
from rejoinder.agent.server.limits import AdmissionMiddleware
from rejoinder.agent.server.operating.addresses import is_from_here, networks
from rejoinder.agent.server.operating.clock import watch_clock
from rejoinder.agent.server.operating.draining import Drain
from rejoinder.agent.server.operating.engine_watch import EngineWatch
from rejoinder.agent.server.operating.followed import FollowedFiles, follow_files
from rejoinder.agent.server.operating.garbage import leave_models_alone
from rejoinder.agent.server.operating.key_file import all_keys, file_of
from rejoinder.agent.server.operating.port_admission import PortAdmission
from rejoinder.agent.server.operating.stalls import watching_loop
from rejoinder.agent.server.recording import open_recordings
from rejoinder.agent.server.switchboard import Switchboard
from rejoinder.agent.wires.audiosocket.server import listening
from rejoinder.agent.wires.call import WireCall
from rejoinder.agent.wires.failures import ENGINE_ENDED_MESSAGE
from rejoinder.agent.wires.names import names
from rejoinder.agent.wires.phone.control.controls import Controls
from rejoinder.agent.wires.wyoming.server import Port, wyoming
from rejoinder.models.hints import needing
from rejoinder.models.loading import Away, Report, open_models, open_variant
from rejoinder.models.steady_clock import steady_time
from rejoinder.pipeline import Models, PipelineError
from rejoinder.pipeline.errors import first_error

log = logging.getLogger(__name__)

PAGE = Path(__file__).parent / "page"
"""The folder of the web page."""
SILENCE_CHECK_SECONDS = 0.5
"""Interval between two checks whether clients send anything, in seconds."""


class Server:
    """The ASGI application, its models and its calls. The port answers while the models still load.

    report: called for each model that is ready. away: called for a remote model that does not answer yet.
    failed: called with the error that ends the program. agent: the integrator's agent, None for none. models:
    loaded already, None to load those of the settings. follow: the agent's name for the command line, to load
    it anew whenever its files change, "" for never. followed: files that are read again when they change.
    Raises ConfigError where the traces file cannot be written, the cache of answers or the store of
    conversations cannot be opened, a package for a carrier is missing, or the file of API keys is wrong.
    """

    def __init__(
        self,
        settings: Settings,
        report: Report,
        failed: Callable[[Exception], None],
        away: Away = lambda spec, error: None,
        agent: Agent[Any, Any] | None = None,
        models: Models | None = None,
        follow: str = "",
    ) -> None:
        self.settings = settings
        self.hosting = Hosting(agent)
        self.models: Models | None = None
        self._given = models
        self._follow = follow
        self.completions = Completions(
            lambda: self.models, self._refuse, settings.max_completions, names(settings.specs()), self._spend
        )
        self.watching = Captions(lambda: [call.feed for call in self.calls], self._may_watch)
        self._keys = Keys([], steady_time)
        self.telemetry = Telemetry(settings, self._model_sets, os.environ)
        self._admission = open_admission(settings, self.telemetry.metrics.meters, self._keys)
        try:
            self._read_keys()
        except ValueError as error:
            raise ConfigError(str(error)) from error
        paths = [file_of(settings)] if settings.api_keys_file else []
        self.followed = [FollowedFiles("API keys", paths, self._read_keys)] if paths else []
        self._report = report
        self._absence = Absence(away, report)
        self._failed = failed
        self._traces = open_traces(settings)
        self._controls = Controls(settings)
        self._cache = open_cache(settings)
        self._drain = Drain(settings.drain_s, settings.drain_goodbye.strip(), settings.drain_url)
        self._ports = PortAdmission(self._admission, networks(settings.address_exempt), self._drain)
        self._home: Port | None = None
        self._journal = open_journal(settings, self.telemetry.metrics.meters)
        self._recordings = open_recordings(settings, self.telemetry)
        self.book = CallBook(settings, self.telemetry.metrics.meters)
        self._call_pages = CallEndpoints(settings, self.book)
        self._engine_watch = EngineWatch(self._model_sets, settings.max_step_s)
        self.switchboard = Switchboard(
            settings,
            lambda: self.models,
            self._keys,
            self._admission,
            self._traces,
            self.hosting,
            self._controls,
            self._cache,
            self._drain,
            self.book.observing(self.telemetry.observe),
            lambda: self._engine_watch.trouble,
            self._recordings,
            self._journal,
        )

    def app(self) -> Starlette:
        """Return the ASGI application."""
        routes = [
            Route("/", self._index),
            Route("/healthz", self._health),
            Route("/readyz", self._ready),
            *([Route("/metrics", self._expose)] if self.settings.metrics else []),
            WebSocketRoute("/v1/realtime", self.switchboard.realtime),
            Route("/v1/realtime/client_secrets", self._secret, methods=["POST"]),
            WebSocketRoute("/v1/phone", self.switchboard.phone),
            *document_routes(self._controls.documents, self.settings.public_url),
            *(Route(path, wants_socket, methods=["GET", "POST"]) for path in SOCKETS),
            WebSocketRoute("/v1/pcm", self.switchboard.pcm),
            *self.completions.routes(),
            *self.watching.routes(),
            *self._call_pages.routes(),
            *RecordingEndpoints(self.settings, self._recordings).routes(),
            WebSocketRoute("/{path:path}", no_socket),
            Mount("/page", StaticFiles(directory=PAGE)),
        ]
        limited = Middleware(
            AdmissionMiddleware,
            keys=self._keys,
            admission=self._admission,
            exempt=networks(self.settings.address_exempt),
            goes_on=self.switchboard.conversations.goes_on,
            busy=self.switchboard.busy,
            full=self.switchboard.full if self.settings.behind_balancer else None,
            drain=self._drain,
        )
        meters = self.telemetry.metrics.meters
        counted = [Middleware(RequestCounter, meters=meters)] if self.settings.metrics else []
        handlers = dict.fromkeys((404, 405), not_there)
        outer = [Middleware(RequestLog), *counted, limited]
        return Starlette(False, routes, outer, handlers, lifespan=lambda app: self.running())

    @property
    def calls(self) -> set[WireCall]:
        """The running calls, also those whose clients are away."""
        return self.switchboard.calls

    def status(self) -> str:
        """Return the status of ``GET /readyz``."""
        missing = ENGINE_ENDED_MESSAGE if failed_model(self.models) else self._engine_watch.trouble
        missing = missing or self._absence.reason
        return self._drain.reason or (LOADING if self.models is None else missing or READY)

    async def drain(self) -> None:
        """Take no more calls, and wait until those in progress have ended, as the settings say.

        Cancelling ends the wait.
        """
        board = self.switchboard

        def working() -> bool:
            return board.answering or self.completions.running or bool(self._home and self._home.answering)

        await self._drain.run(self.calls, working, board.conversations.end_waiting)

    def end_streams(self) -> None:
        """End all HTTP streams, because the server ends. Calls with a socket end by themselves."""
        self.completions.end()
        self._call_pages.end()
        self.switchboard.conversations.end_waiting()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load the models and open the ports of their own for the length of the block, then end all calls.

        Cancelling ends the calls, too.
        """
        async with AsyncExitStack() as stack, AsyncExitStack() as hosted:
            try:
                await hosted.enter_async_context(self.hosting.running())
            except BrokenAgent as error:
                if self._given:
                    raise
                self._failed(error)  # the server ends, and its command shows the line
                yield
                return
            await stack.enter_async_context(self._admission.running())
            if self._cache:
                await stack.enter_async_context(self._cache.running())
            if self._journal:
                await stack.enter_async_context(self._journal.running())
            if self._recordings:
                await stack.enter_async_context(self._recordings.running())
            await hosted.enter_async_context(self.telemetry.running())
            await stack.enter_async_context(self.book.running())
            host, port = self.settings.host, self.settings.audiosocket_port
            asterisk = listening(host, port, self.switchboard.audiosocket, self._failed, self._ports)
            home = wyoming(self.settings, lambda: self.models, self._failed, self._ports)
            if self._given:  # calls may begin at once, and errors are the integrator's
                await self._open(stack)
            loading = asyncio.create_task(self._load(stack), name="load-models")
            silence = asyncio.create_task(self._end_silent_calls(), name="silent-calls")
            following = asyncio.create_task(self._follow_agent(), name="reload")
            rereading = asyncio.create_task(follow_files(self.followed), name="follow-files")
            try:
                async with asterisk, home as self._home:  # their calls end before the models are closed
                    yield
            finally:
                await self.switchboard.conversations.aclose()
                for task in (tasks := [loading, following, silence, rereading]):
                    task.cancel()
                await asyncio.wait(tasks)
                await self._controls.aclose()
                if self._traces is not None:
                    self._traces.close()

    async def _open(self, stack: AsyncExitStack) -> None:
        """Open the models and the agent's own sets of them. From then on calls are taken."""
        settings, placement = self.settings, self.settings.placement()
        if settings.allowed_mcp_urls:
            with needing("mcp", "the setting allowed_mcp_urls"):  # now: to import it in a call is slow
                import_module("rejoinder.agent.app.mcp.connection")
        if (models := self._given) is None:
            opened = open_models(
                settings.specs(),
                settings.threads(),
                self._report,
                placement,
                self._absence.begin,
            )
            models = await stack.enter_async_context(opened)
        host, options = self.hosting.current, settings.options()
        announcement = settings.recording_announcement
        greeting, apologies = options.greeting, (options.apology, options.cut_apology, announcement)
        models = await rehearsed(models, greeting, host.agent if host else None, apologies)
        if host:
            host.check(models)
            for name, specs in host.models.items():
                another = open_variant(models, specs, settings.threads(), self._report, placement)
                variant = await stack.enter_async_context(another)
                host.variants[name] = await rehearsed(variant, greeting, host.agent, apologies)
            host.variants[""] = models
        if settings.guard:
            stack.push_async_callback(settings.guard.aclose)
        self.models = models

    async def _load(self, stack: AsyncExitStack) -> None:
        try:
            if self.models is None:
                await self._open(stack)
            assert self.models is not None
            models = self.models
            leave_models_alone()
            with watching_loop():  # only now: an import may block the loop while nothing is served
                await self._accompany(models)
        except Exception as error:
            first = first_error(error)
            self._failed(first if isinstance(first, Exception) else error)

    async def _accompany(self, models: Models) -> None:
        """Run what goes on beside the calls, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(adjust_load_shedding(models.load_shedder), name="load-shedding")
            tasks.create_task(self._engine_watch.watch(), name="watch-engines")
            tasks.create_task(self._engine_watch.probe(), name="probe-engines")
            tasks.create_task(self._absence.end(models.llm), name="absence")
            tasks.create_task(watch_clock(), name="watch-clock")
            host = self.hosting.current
            for each in host.variants.values() if host else [models]:
                tasks.create_task(self._rehearse(each), name="apologies")

    async def _rehearse(self, models: Models) -> None:
        others = (self.settings.drain_goodbye, self.settings.recording_announcement)
        await rehearse_apologies(models, self.settings.options(), *others)

    async def _end_silent_calls(self) -> None:
        """End the calls whose clients send nothing for too long, until cancelled."""
        while self.settings.max_silent_s:
            for call in list(self.calls):
                call.end_if_silent()
            await asyncio.sleep(SILENCE_CHECK_SECONDS)

    async def _follow_agent(self) -> None:
        try:
            if self._follow:
                await follow(self._follow, self.hosting, self._prepare)
        except PipelineError as error:
            self._failed(error)

    async def _prepare(self, agent: Agent[Any, Any]) -> None:
        """Let each voice that is loaded keep the phrases of an agent. Raises ConfigError as at the start."""
        host = self.hosting.current
        if self.models:
            AgentHost(agent).check(self.models)
        for models in host.variants.values() if host else filter(None, [self.models]):
            await rehearsed(models, self.settings.options().greeting, agent)

    async def _index(self, request: Request) -> Response:
        return FileResponse(PAGE / "index.html")

    async def _health(self, request: Request) -> Response:
        known = {"status": "ok", "sessions": len(self.calls)}
        return JSONResponse({**known, "load": load(self.models.load_shedder)} if self.models else known)

    async def _ready(self, request: Request) -> Response:
        status = self.status()
        return JSONResponse({"status": status}, status_code=200 if status == READY else 503)

    async def _secret(self, request: Request) -> Response:
        if refused := self._refuse(request):
            return refused
        if self.models is None:
            return refusal(503, "the models are still loading", "loading", retry=2)
        wire = self.switchboard.wire(self.settings.options())
        return await mint(request, self._keys, wire, self._admission.secrets)

    def read_again(self) -> None:
        """Read the followed files again, whether they have changed or not."""
        for each in self.followed:
            each.look(anyway=True)

    def _read_keys(self) -> None:
        keys = all_keys(self.settings)
        self._keys.replace([one.partition(":")[0] for one in keys.split()])
        self._admission.keys.replace_own(own_allowances(keys))

    def _refuse(self, request: HTTPConnection) -> Response | None:
        return refused(request, self._keys, self.switchboard.welcome)

    def _spend(self, request: HTTPConnection) -> Callable[[int], None] | None:
        """Return what takes the tokens that a request uses, None where its key has no limit of them."""
        return self._admission.keys.meter(self._keys.owner(shown(request.scope)))

    def _may_watch(self, request: HTTPConnection, what: str = "captions of calls") -> Response | None:
        """Return the refusal of a client that may not read ``what``. Without keys, only this machine may."""
        if not self._keys.needed and not (self.settings.local and is_from_here(request.scope)):
            reason = f"{what} can be read on this machine only, unless api_keys is set"
            return refusal(403, reason)
        return self._refuse(request)

    def _model_sets(self) -> list[Models]:
        host = self.hosting.current
        variants = list(host.variants.values()) if host else []
        return variants or ([self.models] if self.models else [])

    async def _expose(self, request: Request) -> Response:
        if refused := self._may_watch(request, "metrics"):
            return refused
        body, content_type = self.telemetry.metrics.exposed(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type})
