"""Limits per API key: concurrent calls, and calls and requests begun in a minute.

The middleware also refuses calls while the server has no capacity.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from rejoinder.agent.server.access import UNDER, shown
from rejoinder.agent.server.keys import Keys
from rejoinder.agent.wires.realtime.events import failure
from rejoinder.pipeline import ProtocolError

MINUTE = 60.0
"""The period of the rate limits, in seconds."""
BUSY_SECONDS = 10
"""Value of ``Retry-After`` where another call has to end first, in seconds."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of one key; 0 stands for no limit.

    sessions: concurrent calls. per_minute: calls and requests begun in any 60 s.
    """

    sessions: int = 0
    per_minute: int = 0


@dataclass(frozen=True, slots=True)
class CallRefused:
    """Why a call may not begin, and when to try again, in seconds."""

    reason: str
    seconds: int


def own_allowances(api_keys: str) -> dict[str, Allowance]:
    """Return the allowances that the setting gives to single keys: ``HASH:SESSIONS:PER_MINUTE``."""
    parts = [one.split(":") for one in api_keys.split()]
    return {hash_: Allowance(int(rest[0]), int(rest[1])) for hash_, *rest in parts if rest}


class Limits:
    """The current use of each key. It does no I/O and has no clock: times are arguments, in seconds.

    usual: the allowance of keys without an entry in ``own``. Clients without a key are not counted, so memory
    is bounded by the number of keys and their calls in a minute.
    """

    def __init__(self, usual: Allowance, own: Mapping[str, Allowance] | None = None) -> None:
        self._usual = usual
        self._own = dict(own or {})
        self._held: Counter[str] = Counter()
        self._begun: dict[str, deque[float]] = {}

    def begin(self, owner: str, now: float) -> CallRefused | None:
        """Count a call until ``end``, or return why it may not begin. A refused call does not count.

        owner: the hash of the key, "" for none.
        """
        sessions = self._of(owner).sessions
        if owner and sessions and self._held[owner] >= sessions:
            return CallRefused(f"this key may hold no more calls at once than {sessions}", BUSY_SECONDS)
        refused = self.ask(owner, now)
        if owner and not refused:
            self._held[owner] += 1
        return refused

    def hold(self, owner: str) -> None:
        """Count a call that goes on without a socket, until ``end``. The limits do not apply to it."""
        if owner:
            self._held[owner] += 1

    def end(self, owner: str) -> None:
        """Stop counting a call."""
        self._held[owner] -= 1
        if self._held[owner] <= 0:
            del self._held[owner]

    def ask(self, owner: str, now: float) -> CallRefused | None:
        """Count a text request, or return why it may not be made."""
        most = self._of(owner).per_minute
        if not owner or not most:
            return None
        begun = self._begun.setdefault(owner, deque())
        while begun and now - begun[0] >= MINUTE:
            begun.popleft()
        if len(begun) >= most:
            seconds = max(1, math.ceil(begun[0] + MINUTE - now))
            reason = f"this key may begin no more calls and requests in a minute than {most}"
            return CallRefused(reason, seconds)
        begun.append(now)
        return None

    def _of(self, owner: str) -> Allowance:
        return self._own.get(owner, self._usual)


class AdmissionMiddleware:
    """Counts each call, and each POST below ``/v1/``, for the key that the client presents.

    A WebSocket over the limit is refused before it is accepted, and a request gets an error in OpenAI's
    shape; both with 429 and ``Retry-After``. The endpoints decide which keys are valid and where one is
    needed.

    goes_on: returns whether a WebSocket resumes a call that is already counted. busy: returns why the server
    takes no calls now, "" where it does. Such calls get 503. Pages in a browser cannot read that status, so
    the endpoint accepts their call and closes it with the reason.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        limits: Limits,
        goes_on: Callable[[Scope], bool],
        busy: Callable[[], str],
    ) -> None:
        self._app = app
        self._goes_on = goes_on
        self._busy = busy
        self._keys = keys
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection. Cancelling ends it, and its call stops counting."""
        if scope["type"] == "websocket":
            await self._call(scope, receive, send)
            return
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"].startswith(UNDER):
            if refused := self._limits.ask(self._owner(scope), time.monotonic()):
                error = failure(ProtocolError(refused.reason, "rate_limit_exceeded"), None, "requests")
                answer = JSONResponse({"error": error["error"]}, 429, _headers(refused))
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._goes_on(scope):
            await self._app(scope, receive, send)
            return
        owner, page = self._owner(scope), "origin" in Headers(scope=scope)
        reason = "" if page else self._busy()
        status = 503 if reason else 429
        full = CallRefused(reason, BUSY_SECONDS) if reason else None
        if refused := full or self._limits.begin(owner, time.monotonic()):
            answer = PlainTextResponse(f"{refused.reason}\n", status, _headers(refused))
            await WebSocket(scope, receive, send).send_denial_response(answer)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._limits.end(owner)

    def _owner(self, scope: Scope) -> str:
        return self._keys.owner(shown(scope))


def _headers(refused: CallRefused) -> dict[str, str]:
    return {"Retry-After": str(refused.seconds)}
