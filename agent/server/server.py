"""The server's ports and endpoints: the page, calls of all kinds, text requests, and health checks."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import date
from functools import partial
from http import HTTPStatus
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.functions.mistakes import BrokenAgent
from rejoinder.agent.app.giving_up import GiveUp
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.hosting import Hosting
from rejoinder.agent.app.rehearsal import read_first_prompt, rehearsed
from rejoinder.agent.app.reloading import follow
from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.metrics.requests import RequestCounter
from rejoinder.agent.metrics.telemetry import Telemetry
from rejoinder.agent.model_names import names
from rejoinder.agent.opening import open_cache, open_guard, open_traces, warn_of_clock
from rejoinder.agent.server.absence import Absence
from rejoinder.agent.server.access import (
    SOCKETS,
    denied,
    error_response,
    is_passed_on,
    no_socket,
    not_there,
    wants_socket,
)
from rejoinder.agent.server.calls.book import CallBook
from rejoinder.agent.server.calls.endpoints import CallEndpoints
from rejoinder.agent.server.calls.recordings import RecordingEndpoints
from rejoinder.agent.server.health import LOADING, READY, away, ended, keep_looking, load
from rejoinder.agent.server.http.captions import Captions
from rejoinder.agent.server.http.client_secrets import mint
from rejoinder.agent.server.http.completions import Completions
from rejoinder.agent.server.journal.opening import open_journal
from rejoinder.agent.server.keys import Keys, hashes_of
from rejoinder.agent.server.limiting.allowance import own_allowances
from rejoinder.agent.server.limiting.limiter import open_limiter
from rejoinder.agent.server.operating.call_watch import CallLimits, CallWatch
from rejoinder.agent.server.operating.clock import steady_seconds, watch_clock
from rejoinder.agent.server.operating.draining import Drain
from rejoinder.agent.server.operating.engine_watch import EngineWatch
from rejoinder.agent.server.operating.followed import FollowedFiles, follow_files
from rejoinder.agent.server.operating.garbage import leave_models_alone
from rejoinder.agent.server.operating.key_file import all_keys, file_of
from rejoinder.agent.server.recording import open_recordings
from rejoinder.agent.server.switchboard import Switchboard
from rejoinder.agent.wires.audiosocket.server import listening
from rejoinder.agent.wires.failures import ENDED
from rejoinder.agent.wires.realtime.events import failure
from rejoinder.agent.wires.wyoming.server import wyoming
from rejoinder.models.llm.routing.budget import DaySpending
from rejoinder.models.loading import Report, Unreachable, open_models, open_variant
from rejoinder.pipeline import Models, ProtocolError
from rejoinder.pipeline.day_tally import DayTally
from rejoinder.pipeline.errors import first_error

log = logging.getLogger(__name__)

PAGE = Path(__file__).parent / "page"
"""The folder of the web page."""


class Server:
    """The ASGI application, its models and its calls. The port answers while the models still load.

    report: called for each model that is ready. away: called for a remote model that does not answer yet.
    failed: called with the error that ends the program. agent: the integrator's. models: loaded ones; None to
    load those of the settings. followed: the agent's name for ``load_agent``, to load it anew whenever its
    files change; "" for not. followed_files: files that are read again when they change. Raises ConfigError
    where the traces file or recordings cannot be written, or the file of API keys is wrong.
    """

    def __init__(
        self,
        settings: Settings,
        report: Report,
        failed: Callable[[Exception], None],
        away: Unreachable = lambda spec, error: None,
        agent: Agent | None = None,
        models: Models | None = None,
        followed: str = "",
    ) -> None:
        self.settings = settings
        self._given = models
        self._followed = followed
        after, words = settings.give_up_after, settings.give_up_words
        self._drain = Drain(settings.drain_s, settings.drain_goodbye)
        self._hosting = Hosting(agent or Agent(), GiveUp(after, words) if after else None)
        self.completions = Completions(
            lambda: self.models,
            self._refused,
            settings.max_completions,
            names(settings.specs()),
            lambda: (self._hosting.current, self._switchboard.options()),
            lambda: self._drain.reason,
        )
        self.watching = Captions(
            lambda: [call.feed for call in self.calls],
            lambda request: self._may_read(request, "captions of calls"),
        )
        self._keys = Keys([], steady_seconds)
        self._report = report
        self._absence = Absence(away, report)
        self._failed = failed
        self._traces = open_traces(settings)
        self._placement = replace(settings.placement(), spending=DaySpending())
        self.telemetry = Telemetry(settings, self._sets, os.environ)
        meters = self.telemetry.metrics.meters if self.telemetry.metrics else None
        self.book = CallBook(settings, meters, self._load_level)
        self._calls_page = CallEndpoints(settings, self.book)
        self._recordings = open_recordings(settings, self.telemetry)
        self._answers = open_cache(settings, partial(self.telemetry.count, "cached_answers", "failed"))
        if self._answers:
            warn_of_clock(self._hosting.current.agent.instructions or settings.instructions)
        limits = CallLimits(settings.max_stuck_s, settings.max_endless_turns, settings.last_words)
        self._call_watch = CallWatch(limits, partial(self.telemetry.count, "ended_calls"))
        self._engine_watch = EngineWatch(self._sets, settings.max_step_s)
        self._guard = open_guard(settings)
        self._journal = open_journal(settings, meters)
        tally = DayTally(date.today)
        self._limiter = open_limiter(settings, self._keys, tally, meters)
        try:
            self._read_keys()
        except ValueError as error:
            raise ConfigError(str(error)) from error
        paths = [file_of(settings)] if settings.api_keys_file else []
        self.followed_files = [FollowedFiles("API keys", paths, self._read_keys)] if paths else []
        self._switchboard = Switchboard(
            settings,
            self._keys,
            self._limiter,
            self._hosting,
            self._traces,
            self.telemetry,
            self.book,
            self._drain,
            self._recordings,
            self._answers,
            self._guard,
            self._journal,
            settings.budget.budgets(tally),
            lambda: self._engine_watch.trouble,
        )
        self.calls, self.conversations = self._switchboard.calls, self._switchboard.conversations

    @property
    def models(self) -> Models | None:
        """The models of new calls, None while they load."""
        return self._switchboard.models

    @models.setter
    def models(self, models: Models) -> None:
        self._switchboard.models = models

    def _sets(self) -> list[Models]:
        """Return all sets of models that are loaded."""
        return [self.models, *self._hosting.current.variants.values()] if self.models else []

    def _load_level(self) -> int:
        return int(self.models.load_shedder.level) if self.models else 0

    def app(self) -> Starlette:
        """Return the ASGI application."""
        routes = [
            Route("/", self._index),
            Route("/healthz", self._health),
            Route("/readyz", self._ready),
            WebSocketRoute("/v1/realtime", self._switchboard.realtime),
            Route("/v1/realtime/client_secrets", self._secret, methods=["POST"]),
            WebSocketRoute("/v1/phone", self._switchboard.phone),
            *(Route(path, self._plain, methods=["GET", "POST"]) for path in SOCKETS),
            WebSocketRoute("/v1/pcm", self._switchboard.pcm),
            *self.completions.routes(),
            *self.watching.routes(),
            *self._calls_page.routes(),
            *RecordingEndpoints(self.settings, self._recordings).routes(),
            *([Route("/metrics", self._show_metrics)] if self.settings.metrics else []),
            WebSocketRoute("/{path:path}", no_socket),
            Mount("/page", StaticFiles(directory=PAGE)),
        ]
        handlers = dict.fromkeys((404, 405), not_there)
        metrics = self.telemetry.metrics
        counting = [Middleware(RequestCounter, meters=metrics.meters)] if metrics else []
        return Starlette(False, routes, counting, handlers, lifespan=lambda app: self.running())

    def read_again(self) -> None:
        """Read the certificate and the file of API keys, whether or not they have changed."""
        for each in self.followed_files:
            each.look(anyway=True)

    def _read_keys(self) -> None:
        """Take the keys of the settings and of their file. Raises ValueError."""
        found = all_keys(self.settings)
        self._keys.replace(hashes_of(found))
        self._limiter.replace(own_allowances(found, self.settings.key_audio_s_per_day))

    async def drain(self) -> None:
        """Take no more calls, and wait for those in progress. Cancelling ends the wait."""
        absent = self.conversations.end_waiting
        admission = self._switchboard.admission
        await self._drain.run(self.calls, lambda: self.completions.busy or admission.busy, absent)

    def end_streams(self) -> None:
        """End all HTTP streams, because the server ends. Calls with a socket end by themselves."""
        self.completions.end()
        self._calls_page.end()
        self.conversations.end_waiting()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take calls for the length of the block; at its end, or when it is cancelled, all calls end."""
        async with AsyncExitStack() as stack:
            port = self.settings.audiosocket_port
            asterisk = listening(self.settings.host, port, self._switchboard.audiosocket, self._failed)
            home = wyoming(self.settings, lambda: self.models, self._failed, self._hosting)
            try:
                await stack.enter_async_context(self.telemetry.running())
                await stack.enter_async_context(self.book.running())
                if self._guard:
                    stack.push_async_callback(self._guard.aclose)
                if self._answers:
                    await stack.enter_async_context(self._answers.running())
                await stack.enter_async_context(self._limiter.running())
                if self._journal:
                    await stack.enter_async_context(self._journal.running())
                if self._recordings:
                    await stack.enter_async_context(self._recordings.running())
                await stack.enter_async_context(self._hosting.running())
                if self._given:
                    await self._begin(self._given, stack)
            except (BrokenAgent, ConfigError) as error:
                self._failed(error)
            loading = asyncio.create_task(self._load(stack), name="load-models")
            following = asyncio.create_task(follow_files(self.followed_files), name="follow-files")
            try:
                async with asterisk, home:  # their calls end before the models are closed
                    yield
            finally:
                await self.conversations.aclose()
                for task in (tasks := [loading, following]):
                    task.cancel()
                await asyncio.wait(tasks)
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
                    self._placement,
                    self._absence.begin,
                )
                await self._begin(await stack.enter_async_context(opened), stack)
                leave_models_alone()
            assert self.models is not None
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(keep_looking(self.models.load_shedder), name="load-shedding")
                tasks.create_task(watch_clock(), name="watch-clock")
                tasks.create_task(self._call_watch.run(lambda: self.calls), name="watch-calls")
                tasks.create_task(self._engine_watch.watch(), name="watch-engines")
                tasks.create_task(self._engine_watch.probe(), name="probe-engines")
                tasks.create_task(self._absence.end(self.models.llm), name="absence")
                if self._followed:
                    following = follow(self._followed, self._hosting, self._prepare)
                    tasks.create_task(following, name="reload")
        except Exception as error:
            first = first_error(error)
            self._failed(first if isinstance(first, Exception) else error)

    async def _begin(self, models: Models, stack: AsyncExitStack) -> None:
        """Take calls with these models, once the agent's sets of models are loaded, too.

        Raises ConfigError if the models do not fit the agent, and ModelError.
        """
        host, options = self._hosting.current, self._switchboard.options()
        host.use(models.llm)
        models = await rehearsed(models, options, host.known_words)
        for name, specs in host.models.items():
            variant = await self._open(models, specs, stack)
            host.variants[name] = await rehearsed(variant, options, host.known_words)
        for spec in host.worker_llms:
            host.llms[spec] = (await self._open(models, {"llm": spec}, stack)).llm
        await read_first_prompt(models, options, host.tools)
        self.models = models

    async def _open(self, models: Models, specs: Mapping[str, str], stack: AsyncExitStack) -> Models:
        opened = open_variant(models, specs, self.settings.threads(), self._report, self._placement)
        return await stack.enter_async_context(opened)

    async def _prepare(self, agent: Agent) -> None:
        """Get ready for another agent. Raises ConfigError if the models do not fit it."""
        assert self.models is not None  # the agent is followed once they are loaded
        host = AgentHost(agent)
        host.use(self.models.llm)
        options = host.options(replace(self.settings.options(), guard=self._guard))
        await rehearsed(self.models, options, host.known_words)

    async def _index(self, request: Request) -> Response:
        return FileResponse(PAGE / "index.html")

    async def _health(self, request: Request) -> Response:
        known = {"status": "ok", "sessions": len(self.calls)}
        return JSONResponse({**known, "load": load(self.models.load_shedder)} if self.models else known)

    def status(self) -> str:
        """Return ``READY``, or why no call can begin."""
        broken = ENDED if ended(self.models) else self._engine_watch.trouble
        unanswered = away(self.models) if self.settings.refuse_without_llm else ""
        missing = self._drain.reason or broken or self._absence.reason or unanswered
        return LOADING if self.models is None else missing or READY

    async def _ready(self, request: Request) -> Response:
        status, reason = self.status(), away(self.models)
        known = {"status": status, **({"language_model": reason} if reason else {})}
        return JSONResponse(known, status_code=200 if status == READY else 503)

    async def _show_metrics(self, request: Request) -> Response:
        assert self.telemetry.metrics is not None  # otherwise there is no such path
        if denied := self._may_read(request, "metrics"):
            return denied
        text, kind = self.telemetry.metrics.exposed(request.headers.get("accept", ""))
        return Response(text, media_type=kind)

    async def _plain(self, request: Request) -> Response:
        """Answer a plain request to the path of a WebSocket. A page asks why its socket was refused."""
        denial = self._switchboard.admission.stranger(request)
        if not denial and self.settings.behind_balancer:
            denial = self._switchboard.admission.refusal()
        return denial.response() if denial else await wants_socket(request)

    async def _secret(self, request: Request) -> Response:
        if refused := await self._refused(request):
            return refused
        if self.models is None:
            return error_response(503, "the models are still loading", "loading", retry=2)
        wire = self._switchboard.wire(self._switchboard.options())
        return await mint(request, self._keys, wire, self._limiter.publish)

    async def _refused(self, request: Request) -> Response | None:
        """Return the answer to a request that is not allowed, or that is one too many.

        Cancelling counts nothing.
        """
        if (refused := self._denied(request)) or request.method != "POST":
            return refused
        denial = await self._limiter.begin(self._switchboard.admission.owners(request), call=False)
        if denial is None:
            return None
        if denial.status != HTTPStatus.TOO_MANY_REQUESTS:
            return error_response(denial.status, denial.reason, "unavailable", denial.retry)
        error = failure(ProtocolError(denial.reason, "rate_limit_exceeded"), None, "requests")["error"]
        return JSONResponse({"error": error}, denial.status, {"Retry-After": str(denial.retry)})

    def _denied(self, request: HTTPConnection) -> Response | None:
        """Return the answer to a request that is not allowed."""
        denial = denied(request, self._keys, self._switchboard.admission.welcome)
        return error_response(denial.status, denial.reason) if denial else None

    def _may_read(self, request: HTTPConnection, what: str) -> Response | None:
        """Return the answer to a client that may not read something. Without keys, only this machine may.

        A request that a proxy has passed on may come from anywhere.
        """
        if not self._keys.needed and (is_passed_on(request) or not self.settings.local):
            return error_response(403, f"{what} can be read on this machine only, unless api_keys is set")
        return self._denied(request)
