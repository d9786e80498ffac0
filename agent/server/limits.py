"""Refuses calls and requests over HTTP: beyond the limits, without capacity, and while the server drains."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from rejoinder.agent.server.access import SOCKETS, UNDER, refusal, route, shown
from rejoinder.agent.server.keys import Keys
from rejoinder.agent.server.limiting.admission import CallAdmission
from rejoinder.agent.server.limiting.allowance import BUSY_SECONDS, CallRefused
from rejoinder.agent.server.operating.addresses import client_group
from rejoinder.agent.server.operating.draining import RETRY_SECONDS, Drain


class AdmissionMiddleware:
    """Counts each call, and each POST below ``/v1/``, for the client's key and for its address.

    A WebSocket over the limit is refused before it is accepted, and a request gets an error in OpenAI's
    shape; both with 429 and ``Retry-After``, or with 503 while the limits cannot be checked. The endpoints
    decide which keys are valid and where one is needed.

    admission: counts them. exempt: networks whose addresses are not counted. goes_on: returns whether
    a WebSocket resumes a call that is already counted. busy: returns why no call is taken now, "" where calls
    are taken. Such calls get 503. Pages in a browser cannot read that status, so the endpoint accepts their
    call and closes it with the reason. drain: while the server drains, requests get 503, too, and calls are
    redirected (307) to another server if there is one. Conversations go on.

    full: of a server behind a balancer, returns that all lines are busy, "" where one is free. Such calls get
    503, and so do pages, so that the balancer asks another server. A page reads the reason by a plain GET
    of the same path, which gets the same answer. None for other servers: the endpoint closes such calls.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        admission: CallAdmission,
        exempt: list[IPv4Network | IPv6Network],
        goes_on: Callable[[Scope], bool],
        busy: Callable[[], str],
        full: Callable[[], str] | None,
        drain: Drain,
    ) -> None:
        self._app = app
        self._goes_on = goes_on
        self._busy = busy
        self._full = full
        self._drain = drain
        self._keys = keys
        self._admission = admission
        self._exempt = exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection. Cancelling ends it, and its call stops counting."""
        if scope["type"] == "websocket":
            await self._call(scope, receive, send)
            return
        if scope["type"] == "http" and scope["method"] == "GET" and self._full and route(scope) in SOCKETS:
            if busy := self._no_line(page=False):
                headers = {"Retry-After": str(busy.seconds)}
                await PlainTextResponse(f"{busy.reason}\n", busy.status, headers)(scope, receive, send)
                return
        if scope["type"] == "http" and scope["method"] == "POST" and route(scope).startswith(UNDER):
            if self._drain.reason:
                answer = refusal(503, self._drain.reason, "shutting_down", RETRY_SECONDS)
                await answer(scope, receive, send)
                return
            if refused := await self._admission.ask(self._owner(scope), self._address(scope)):
                code = "rate_limit_exceeded" if refused.status == 429 else "limits_unavailable"
                answer = refusal(refused.status, refused.reason, code, refused.seconds)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._admission.secrets:
            await self._admission.secrets.learn(shown(scope))
        if self._goes_on(scope):
            await self._app(scope, receive, send)
            return
        owner, address = self._owner(scope), self._address(scope)
        busy = self._no_line(page="origin" in Headers(scope=scope))
        if refused := busy or await self._admission.begin(owner, address):
            status, headers = refused.status, {"Retry-After": str(refused.seconds)}
            if where := self._drain.location(route(scope), scope["query_string"].decode("latin-1")):
                status, headers = 307, {**headers, "Location": where}
            answer = PlainTextResponse(f"{refused.reason}\n", status, headers)
            await WebSocket(scope, receive, send).send_denial_response(answer)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._admission.end(owner, address)

    def _no_line(self, page: bool) -> CallRefused | None:
        """Return the refusal of a call now, None where the endpoint takes it or tells a page why not."""
        if page and not self._full:
            return None
        reason = self._busy() or (self._full() if self._full else "")
        return CallRefused(reason, BUSY_SECONDS, status=503) if reason else None

    def _address(self, scope: Scope) -> str:
        return client_group(scope, self._exempt)

    def _owner(self, scope: Scope) -> str:
        return self._keys.owner(shown(scope))
