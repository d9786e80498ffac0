"""Access control: which clients may call and send requests, and the refusals of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Scope
from starlette.websockets import WebSocket

from rejoinder.agent.server.denial import Denial
from rejoinder.agent.server.keys import Keys, presented
from rejoinder.agent.wires.call_log import log_refused
from rejoinder.agent.wires.failures import error_body
from rejoinder.agent.wires.transport import Transport, hang_up
from rejoinder.models.llm.addresses import is_loopback
from rejoinder.pipeline import PipelineError

UNDER = "/v1/"
"""The path prefix below which errors have OpenAI's shape."""
SOCKETS = ("/v1/realtime", "/v1/phone", "/v1/pcm")
"""Paths of WebSockets."""
PROXY_HEADERS = ("forwarded", "x-forwarded-for")
"""Headers of a request that a proxy has passed on (RFC 7239)."""
CODES = {401: "invalid_api_key", 403: "forbidden"}
"""OpenAI's error code for each HTTP status."""


class RequestError(PipelineError):
    """A request cannot be answered. status: of HTTP. retry: seconds until it can, 0 for never."""

    def __init__(self, status: int, message: str, code: str, retry: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry = retry


def shown(scope: Scope) -> str:
    """Return the key that a client presents, in a header or among its sub-protocols, "" for none."""
    return presented(Headers(scope=scope).get("authorization"), scope.get("subprotocols", ()))


def is_passed_on(request: HTTPConnection) -> bool:
    """Return whether a proxy says that it has passed a request on."""
    return any(header in request.headers for header in PROXY_HEADERS)


def may_call(origin: str | None, host: str, allowed: Sequence[str], local: bool) -> bool:
    """Return whether a page of ``origin`` may call. Clients other than browsers send no origin and may.

    Browsers let any page open a WebSocket to any host, including this machine (RFC 6455, 10.2). Without this
    rule any visited page could use the agent. allowed: further origins. local: whether only this machine can
    call. The page must then have a loopback origin, because a foreign name can be made to resolve to this
    machine (DNS rebinding).
    """
    if origin is None or "*" in allowed or origin in allowed:
        return True
    try:
        same = urlsplit(origin).netloc == host
    except ValueError:  # half an IPv6 address
        return False
    return same and (not local or is_loopback(origin))


def denied(request: HTTPConnection, keys: Keys, welcome: Callable[[str | None, str], bool]) -> Denial | None:
    """Return why a client may not ask, None if it may. Client secrets do not count as keys.

    A browser sends no origin when a page reads from its own server, and a foreign name can be made to resolve
    to this machine. So where no key is needed, the requested host must be one whose pages may call.

    welcome: takes an origin and a host; returns whether that page may call.
    """
    host = request.headers.get("host", "")
    hosts = [None] if keys.needed else [f"http://{host}", f"https://{host}"]
    origins = [request.headers["origin"]] if "origin" in request.headers else hosts
    if not any(welcome(origin, host) for origin in origins):
        reason = f"pages from {origins[0]} may not ask; see the setting allowed_origins"
        return Denial(HTTPStatus.FORBIDDEN, reason)
    key = shown(request.scope)
    return None if keys.is_key(key) else Denial(HTTPStatus.UNAUTHORIZED, keys.wrong(key))


def error_response(status: int, message: str, code: str = "", retry: int = 0) -> Response:
    """Return an error in OpenAI's shape. retry: seconds until the client may try again, 0 for never."""
    kind = "invalid_request_error" if status < 429 else "server_error"
    kind = "rate_limit_error" if status == 429 else kind
    headers = {"Retry-After": str(retry)} if retry else None
    error = error_body(message, kind, code or CODES[status])
    return JSONResponse({"error": error}, status_code=status, headers=headers)


async def not_there(request: Request, error: Exception) -> Response:
    """Answer a request for an unknown path (404) or with a wrong method (405).

    It never waits, so there is nothing to cancel.
    """
    assert isinstance(error, HTTPException)
    path, headers = request.url.path[:64], error.headers
    if not path.startswith(UNDER):
        return PlainTextResponse(f"{error.detail}\n", error.status_code, headers)
    reason, code = f"there is no {path} here", "unknown_url"
    if error.status_code == 405:
        reason = f"{path} knows no {request.method[:16]}, only {(headers or {}).get('Allow')}"
        code = "method_not_allowed"
    body = {"error": error_body(reason, "invalid_request_error", code)}
    return JSONResponse(body, error.status_code, headers)


async def no_socket(websocket: WebSocket) -> None:
    """Refuse a WebSocket to a path that has none (404).

    Cancelling leaves it to the server, which drops it.
    """
    reason = f"there is no WebSocket at {websocket.url.path[:64]}, but at {', '.join(SOCKETS)}"
    await Denial(HTTPStatus.NOT_FOUND, reason).send(websocket)


async def decline(transport: Transport, code: int, reason: str) -> None:
    """Close the connection of a call that does not begin, and log why. Cancelling leaves it to the server."""
    log_refused(transport.where, transport.client, reason)
    await hang_up(transport, code, reason)


async def body(request: Request, most: int) -> bytes:
    """Return the body of a request, at most ``most`` bytes. Raises RequestError. Cancelling stops reading."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise RequestError(413, f"more than {most} bytes", "request_too_large")
    return body


async def wants_socket(request: Request) -> Response:
    """Answer a plain HTTP request to a WebSocket path with 426 (RFC 9110, 15.5.22).

    It never waits, so there is nothing to cancel.
    """
    reason = f"{request.url.path} is a WebSocket: connect to it with ws:// or wss://"
    if request.url.path == "/v1/phone":
        reason += "; what a carrier fetches by HTTP first, such as TwiML, has to come from a server of yours"
    return PlainTextResponse(f"{reason}\n", 426, {"Upgrade": "websocket", "Connection": "Upgrade"})
