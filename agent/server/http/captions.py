"""``GET /v1/sessions`` and ``/v1/sessions/{id}/events``: which calls there are, and what is said in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rejoinder.agent.server.access import refusal
from rejoinder.agent.server.http.sse import KEEP_ALIVE, KEEP_ALIVE_SECONDS, EventStream, data
from rejoinder.agent.wires.feed import Feed, Watcher
from rejoinder.pipeline import Closed

MAX_WATCHERS = 32
"""At a time, of all calls together: each is a connection, and up to ``MAX_EVENTS`` events."""


class Captions:
    """The calls of one server, for whoever may watch them.

    feeds: returns those of the calls that there are. refuse: returns why a request is not answered.
    """

    def __init__(
        self, feeds: Callable[[], Sequence[Feed]], refuse: Callable[[Request], Response | None]
    ) -> None:
        self._feeds = feeds
        self._refuse = refuse

    def routes(self) -> list[Route]:
        """Return where it answers."""
        return [
            Route("/v1/sessions", self._list),
            Route("/v1/sessions/{id:path}/events", self._events),
        ]

    async def _list(self, request: Request) -> Response:
        if refused := self._refuse(request):
            return refused
        feeds = sorted(self._feeds(), key=lambda feed: feed.since)
        return JSONResponse({"object": "list", "data": [feed.about() for feed in feeds]})

    async def _events(self, request: Request) -> Response:
        if refused := self._refuse(request):
            return refused
        feeds = self._feeds()
        known = [feed for feed in feeds if feed.id == request.path_params["id"]]
        if not known:
            return refusal(404, "there is no such call, or it is over", "session_not_found")
        feed = max(known, key=lambda one: one.since)  # a carrier may send one call's sound twice
        if sum(len(one.watchers) for one in feeds) >= MAX_WATCHERS:
            return refusal(429, f"{MAX_WATCHERS} watch already", "rate_limit_exceeded", retry=5)
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
