"""``GET /v1/sessions`` and ``/v1/sessions/{id}/events``: the list of calls, and their captions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rejoinder.agent.server.access import error_response
from rejoinder.agent.server.http.sse import KEEP_ALIVE, KEEP_ALIVE_SECONDS, EventStream, data
from rejoinder.agent.wires.feed import Feed, Watcher
from rejoinder.pipeline import Closed

MAX_WATCHERS = 32
"""Most watchers of all calls together. Each needs a connection and memory for ``MAX_EVENTS`` events."""


class Captions:
    """The captions of one server's calls.

    feeds: returns the feeds of the current calls. denied: returns the answer to a request that is not
    allowed, None for any other.
    """

    def __init__(
        self, feeds: Callable[[], Sequence[Feed]], denied: Callable[[Request], Response | None]
    ) -> None:
        self._feeds = feeds
        self._denied = denied

    def routes(self) -> list[Route]:
        """Return the routes of the endpoints."""
        return [
            Route("/v1/sessions", self._list),
            Route("/v1/sessions/{id:path}/events", self._events),
        ]

    async def _list(self, request: Request) -> Response:
        if denied := self._denied(request):
            return denied
        feeds = sorted(self._feeds(), key=lambda feed: feed.since)
        return JSONResponse({"object": "list", "data": [feed.about() for feed in feeds]})

    async def _events(self, request: Request) -> Response:
        if denied := self._denied(request):
            return denied
        feeds = self._feeds()
        known = [feed for feed in feeds if feed.id == request.path_params["id"]]
        if not known:
            return error_response(404, "there is no such call, or it is over", "session_not_found")
        feed = max(known, key=lambda one: one.since)  # a carrier may open two streams with the same call id
        if sum(len(one.watchers) for one in feeds) >= MAX_WATCHERS:
            reason = f"{MAX_WATCHERS} clients watch calls already, which is the most: try again later"
            return error_response(429, reason, "rate_limit_exceeded", retry=5)
        watcher = feed.watch()

        async def leave() -> None:
            feed.watchers.discard(watcher)

        return EventStream(_stream(watcher), leave)


async def _stream(watcher: Watcher) -> AsyncGenerator[str, None]:
    while True:
        try:
            async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                event = await watcher.events.receive()
        except TimeoutError:
            yield KEEP_ALIVE
            continue
        except Closed:
            return
        yield data(event)
