"""Logs each HTTP request below ``/v1/`` that is refused, with the reason that its client gets."""

from __future__ import annotations

import json

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rejoinder.agent.server.access import LEFT, UNDER, route
from rejoinder.agent.wires.call_log import refused_request

REPORTED = b"x-request-id"
"""Header of a response to a request whose failure is in the log already, in full."""


class RequestLog:
    """Writes one log line for each refused request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection. Cancelling ends it."""
        if scope["type"] != "http" or not route(scope).startswith(UNDER):
            await self._app(scope, receive, send)
            return
        status = 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                reported = any(name.lower() == REPORTED for name, _ in message["headers"])
                status = 0 if reported or message["status"] == LEFT else message["status"]
            elif status >= 400:
                refused_request(route(scope), scope.get("client"), status, reason(message.get("body", b"")))
                status = 0
            await send(message)

        await self._app(scope, receive, sent)


def reason(body: bytes) -> str:
    """Return the reason in the body of a refusal: an error in OpenAI's shape, or a line of text."""
    text = body.decode(errors="replace")
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()
