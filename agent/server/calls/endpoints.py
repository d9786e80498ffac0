"""``GET /calls``, and the JSON that its page and ``rejoinder calls`` read below ``/calls/api``."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from rejoinder.agent.config import Settings
from rejoinder.agent.server.access import error_response
from rejoinder.agent.server.calls.book import CallBook
from rejoinder.agent.server.calls.export import trace_lines, whole_calls
from rejoinder.agent.server.calls.filters import CallFilter
from rejoinder.agent.server.calls.reading import Readers
from rejoinder.agent.server.http.sse import KEEP_ALIVE, KEEP_ALIVE_SECONDS, EventStream, data
from rejoinder.pipeline import ProtocolError

log = logging.getLogger(__name__)

CALLS_PAGE = Path(__file__).parent / "page"
"""The folder of the page."""
UNCACHED = {"Cache-Control": "no-store"}
"""Headers of answers with words or sound of callers."""
TICK_SECONDS = 0.5
"""Interval between two looks at the running calls, in seconds."""
MAX_READERS = 16
"""Most clients that follow the calls live. Each costs a look at all running calls, twice a second."""
MAX_LIVE = 200
"""Most running calls in one message; the last ones to begin."""
EXPORT_FORMS = {"calls": whole_calls, "turns": trace_lines}
"""The forms of an export."""


class CallEndpoints:
    """The endpoints of one server's calls."""

    def __init__(self, settings: Settings, book: CallBook) -> None:
        self._on = settings.calls_page
        self._book = book
        self._readers = Readers(settings)
        self._following = 0
        self._over = asyncio.Event()
        self._looked = (0.0, list[dict[str, Any]]())

    def routes(self) -> list[BaseRoute]:
        """Return the routes; none where the setting ``calls_page`` is off."""
        if not self._on:
            return []
        return [
            Route("/calls", self._page),
            Route("/calls/api/calls", self._guarded(self._list)),
            Route("/calls/api/calls/{id}", self._guarded(self._one)),
            Route("/calls/api/export", self._guarded(self._export)),
            Route("/calls/api/live", self._guarded(self._live)),
            Mount("/calls/page", StaticFiles(directory=CALLS_PAGE)),
        ]

    def end(self) -> None:
        """End all streams, because the server ends."""
        self._over.set()

    async def _page(self, request: Request) -> Response:
        return self._readers.deny_page(request) or FileResponse(CALLS_PAGE / "calls.html")

    def _guarded(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that answers who may read, and tells others and failures of the database why."""

        async def guarded(request: Request) -> Response:
            if denied := self._readers.deny(request):
                return denied
            try:
                return await answer(request)
            except ProtocolError as error:
                return error_response(400, str(error), error.code or "invalid_value")
            except sqlite3.Error as error:  # it is locked or broken, or a search takes too long
                log.warning("calls_db cannot be read: %s", error)
                reason = "the database of calls does not answer: see the log"
                return error_response(503, reason, "database_error", retry=2)

        return guarded

    async def _list(self, request: Request) -> Response:
        wanted = CallFilter.of(request.query_params)
        calls = await self._book.summaries(wanted)
        found = {"calls": calls, "more": len(calls) == wanted.limit, "live": self._look()}
        found["load_level"] = self._book.load_level()
        return JSONResponse(found, headers=UNCACHED)

    async def _one(self, request: Request) -> Response:
        if (body := await self._book.get(request.path_params["id"])) is None:
            return error_response(404, "there is no such call, or it is no longer kept", "call_not_found")
        return Response(body, media_type="application/json", headers=UNCACHED)

    async def _export(self, request: Request) -> Response:
        wanted, form = CallFilter.of(request.query_params), request.query_params.get("form", "calls")
        if form not in EXPORT_FORMS:
            raise ProtocolError(f"form has to be one of {', '.join(EXPORT_FORMS)}", "invalid_value", "form")
        bodies = await self._book.bodies(wanted)
        lines = await asyncio.get_running_loop().run_in_executor(
            None, lambda: "".join(EXPORT_FORMS[form](bodies))
        )
        named = {"Content-Disposition": f'attachment; filename="{form}.jsonl"', **UNCACHED}
        return Response(lines, media_type="application/jsonl", headers=named)

    async def _live(self, request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if self._following >= MAX_READERS:
            why = f"{MAX_READERS} clients follow the calls already, which is the limit: try again later"
            return error_response(429, why, "rate_limit_exceeded", retry=5)
        self._following += 1

        async def leave() -> None:
            self._following -= 1

        return EventStream(self._follow(request.query_params.get("call", "")), leave)

    async def _follow(self, id_: str) -> AsyncGenerator[str, None]:
        """Yield the state of the running calls, and the turns of one of them that have changed since.

        Each message is made when the one before has been sent, so a slow client costs no memory.
        """
        seen, last, silent = -1, "", 0.0
        while not self._over.is_set():
            message: dict[str, Any] = {"live": self._running(), "ended": self._book.ended}
            message["load_level"] = self._book.load_level()
            if (recorder := self._book.running_call(id_)) and recorder.changes > seen:
                message["call"] = recorder.record.described(seen)
                seen = recorder.changes
            event = data(message)
            silent = silent + TICK_SECONDS if event == last else 0.0
            if event != last:
                yield event
            elif silent >= KEEP_ALIVE_SECONDS:
                silent = 0.0
                yield KEEP_ALIVE
            last = event
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._over.wait()

    def _running(self) -> list[dict[str, Any]]:
        """Return the running calls at one look for all readers of a moment."""
        now = asyncio.get_running_loop().time()
        if now > self._looked[0] + TICK_SECONDS / 2.0:
            self._looked = now, self._look()
        return self._looked[1]

    def _look(self) -> list[dict[str, Any]]:
        return [one.live() for one in reversed(list(self._book.live.values())[-MAX_LIVE:])]
