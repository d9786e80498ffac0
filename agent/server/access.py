"""Access control: which clients may call and send requests, and the refusals of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Scope
from starlette.websockets import WebSocket

from rejoinder.agent.server.keys import Keys, presented
from rejoinder.agent.wires import call_log
from rejoinder.agent.wires.realtime.events import error_body
from rejoinder.agent.wires.socket import Socket, hang_up
from rejoinder.models.llm.openai import is_loopback
from rejoinder.pipeline import PipelineError

UNDER = "/v1/"
"""The path prefix below which errors have OpenAI's shape."""
SOCKETS = ("/v1/realtime", "/v1/phone", "/v1/pcm")
"""Paths of WebSockets."""
CODES = {401: "invalid_api_key", 403: "forbidden"}
"""OpenAI's error code for each HTTP status."""
LEFT = 499
"""nginx's status for a client that has left. No client reads it."""


class Refused(PipelineError):
    """A request is refused. status: of HTTP. retry: seconds until the client may try again, 0 for never."""

    def __init__(self, status: int, message: str, code: str, retry: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry = retry


def route(scope: Scope) -> str:
    """Return the path of a request below the path at which this application is mounted."""
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


def shown(scope: Scope) -> str:
    """Return the key that a client presents, in a header or among its sub-protocols, "" for none."""
    return presented(Headers(scope=scope).get("authorization"), scope.get("subprotocols", ()))


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


def refused(
    request: HTTPConnection, keys: Keys, welcome: Callable[[str | None, str], bool]
) -> Response | None:
    """Return the refusal of a request, None where it is allowed. Client secrets do not count as keys.

    A browser sends no origin when a page reads from its own server, and a foreign name can be made to resolve
    to this machine. So where no key is needed, the requested host must be one whose pages may call.

    welcome: takes an origin and a host; returns whether that page may call.
    """
    host = request.headers.get("host", "")
    hosts = [None] if keys.needed else [f"http://{host}", f"https://{host}"]
    origins = [request.headers["origin"]] if "origin" in request.headers else hosts
    if not any(welcome(origin, host) for origin in origins):
        reason = "may not send requests: add their origin to the setting allowed_origins"
        return refusal(403, f"pages from {origins[0]} {reason}")
    key = shown(request.scope)
    return None if keys.is_key(key) else refusal(401, keys.wrong(key))


def refusal(
    status: int, message: str, code: str | None = "", retry: int = 0, param: str | None = None
) -> Response:
    """Return an error in OpenAI's shape.

    code: "" for the one in ``CODES``. retry: seconds until the client may try again, 0 for never. param: the
    field of the request that is wrong.
    """
    kind = "invalid_request_error" if status < 429 else "server_error"
    kind = "requests" if status == 429 else kind
    headers = {"Retry-After": str(retry)} if retry else None
    error = error_body(message, kind, CODES.get(status) if code == "" else code, param)
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
        reason = f"{path} does not support {request.method[:16]}: use {(headers or {}).get('Allow')}"
        code = "method_not_allowed"
    answer = refusal(error.status_code, reason, code)
    answer.headers.update(headers or {})
    return answer


async def no_socket(websocket: WebSocket) -> None:
    """Refuse a WebSocket to a path that has none (404).

    Cancelling leaves it to the server, which drops it.
    """
    reason = f"there is no WebSocket at {websocket.url.path[:64]}: use one of {', '.join(SOCKETS)}\n"
    await websocket.send_denial_response(PlainTextResponse(reason, 404))


async def admits_page(websocket: WebSocket, welcome: Callable[[str | None, str], bool]) -> bool:
    """Return whether a page of this origin may call; refuse the WebSocket (403) where it may not.

    welcome: takes an origin and a host. Cancelling leaves the socket to the server, which drops it.
    """
    origin, host = websocket.headers.get("origin"), websocket.headers.get("host", "")
    if welcome(origin, host):
        return True
    reason = f"pages from {origin} may not call: add their origin to the setting allowed_origins\n"
    await websocket.send_denial_response(PlainTextResponse(reason, status_code=403))
    return False


async def turn_away(websocket: Socket, code: int, reason: str) -> None:
    """Close the socket of a call that does not begin, and log why. Cancelling leaves it to the server."""
    path = websocket.url.path if isinstance(websocket, WebSocket) else "AudioSocket"
    call_log.refused(path, websocket.client, reason)
    await hang_up(websocket, code, reason)


async def body(request: Request, most: int) -> bytes:
    """Return the body of a request. Cancelling stops reading.

    Raises Refused for more than ``most`` bytes, and ClientDisconnect where the client leaves before its end.
    """
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise Refused(413, f"more than {most} bytes", "request_too_large")
    return body


async def wants_socket(request: Request) -> Response:
    """Answer a plain HTTP request to a WebSocket path with 426 (RFC 9110, 15.5.22).

    It never waits, so there is nothing to cancel.
    """
    reason = f"{request.url.path} is a WebSocket: connect to it with ws:// or wss://"
    if request.url.path == "/v1/phone":
        reason += "; what a carrier fetches by HTTP first, such as TwiML, has to come from a server of yours"
    return PlainTextResponse(f"{reason}\n", 426, {"Upgrade": "websocket", "Connection": "Upgrade"})
