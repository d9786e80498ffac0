"""How much each API key may use: calls at once, and calls and requests begun in a minute.

And whether there is room for a call at all.
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
BUSY_SECONDS = 10
"""When to try again where a call has to end first, which may be at any moment."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one key may use; 0 is without a limit.

    sessions: calls at once. per_minute: calls and requests begun in any 60 s.
    """

    sessions: int = 0
    per_minute: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a call may not begin, and after how many seconds to try again."""

    reason: str
    seconds: int


def own_allowances(api_keys: str) -> dict[str, Allowance]:
    """Return those keys' allowances that name one: ``HASH:SESSIONS:PER_MINUTE`` in the setting."""
    parts = [one.split(":") for one in api_keys.split()]
    return {hash_: Allowance(int(rest[0]), int(rest[1])) for hash_, *rest in parts if rest}


class Limits:
    """What each key uses at the moment. Without I/O and clock: times are handed in, in seconds.

    usual: what a key may use that has no entry in ``own``. Memory is bounded by the number of keys and what
    they may begin in a minute: whoever has no key is not counted.
    """

    def __init__(self, usual: Allowance, own: Mapping[str, Allowance] | None = None) -> None:
        self._usual = usual
        self._own = dict(own or {})
        self._held: Counter[str] = Counter()
        self._begun: dict[str, deque[float]] = {}

    def begin(self, owner: str, now: float) -> Refused | None:
        """Count a call, until ``end``; or say why it may not begin. What is refused counts for nothing.

        owner: the hash of the key, "" for none.
        """
        sessions = self._of(owner).sessions
        if owner and sessions and self._held[owner] >= sessions:
            return Refused(f"this key may hold no more calls at once than {sessions}", BUSY_SECONDS)
        refused = self.ask(owner, now)
        if owner and not refused:
            self._held[owner] += 1
        return refused

    def hold(self, owner: str) -> None:
        """Count a call that goes on without a socket, until ``end``."""
        if owner:
            self._held[owner] += 1

    def end(self, owner: str) -> None:
        """Note that a call is over."""
        self._held[owner] -= 1
        if self._held[owner] <= 0:
            del self._held[owner]

    def ask(self, owner: str, now: float) -> Refused | None:
        """Count a request that holds no call, or say why it may not be made."""
        most = self._of(owner).per_minute
        if not owner or not most:
            return None
        begun = self._begun.setdefault(owner, deque())
        while begun and now - begun[0] >= MINUTE:
            begun.popleft()
        if len(begun) >= most:
            seconds = max(1, math.ceil(begun[0] + MINUTE - now))
            reason = f"this key may begin no more calls and requests in a minute than {most}"
            return Refused(reason, seconds)
        begun.append(now)
        return None

    def _of(self, owner: str) -> Allowance:
        return self._own.get(owner, self._usual)


class RateLimitMiddleware:
    """Every call and every POST below ``/v1/``, counted for the key that is shown.

    A WebSocket is refused before it is accepted, a request in the shape of OpenAI's errors; both with 429 and
    ``Retry-After``. Which keys are known, and where one is needed, the endpoints decide.

    goes_on: whether a WebSocket goes on with a call that is counted already. busy: why the machine takes no
    call at all at this moment, which is answered with 503, "" where it does. A page cannot read that: it is
    told so by the endpoint, once its call is accepted.
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
        """Serve one connection."""
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
        full = Refused(reason, BUSY_SECONDS) if reason else None
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


def _headers(refused: Refused) -> dict[str, str]:
    return {"Retry-After": str(refused.seconds)}
