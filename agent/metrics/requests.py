"""Counts HTTP requests and WebSockets by path and status, and WebSockets by close code."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rejoinder.agent.metrics.labels import OTHER_LABEL
from rejoinder.agent.metrics.measures import Measurement
from rejoinder.agent.metrics.meters import Meters

COUNTED_PATHS = (
    "/", "/healthz", "/readyz", "/metrics", "/v1/realtime", "/v1/realtime/client_secrets", "/v1/phone",
    "/v1/pcm", "/v1/chat/completions", "/v1/models", "/v1/sessions",
)  # fmt: skip
"""Paths that are counted by themselves; all others are one."""


class RequestCounter:
    """Middleware that counts each request once, when its response begins.

    An accepted WebSocket counts with status 101. Its close code counts where the server closes it.
    """

    def __init__(self, app: ASGIApp, meters: Meters) -> None:
        self._app = app
        self._meters = meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection. Cancelling ends it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
        path = path if path in COUNTED_PATHS else OTHER_LABEL

        async def count(message: Message) -> None:
            kind = message["type"]
            if kind in ("http.response.start", "websocket.http.response.start"):
                self._meters.record([Measurement("requests", labels=(path, str(message["status"])))])
            elif kind == "websocket.accept":
                self._meters.record([Measurement("requests", labels=(path, "101"))])
            elif kind == "websocket.close":
                self._meters.record([Measurement("socket_closes", labels=(str(message.get("code", 1000)),))])
            await send(message)

        await self._app(scope, receive, count)
