"""Who may read ``/calls``: this machine, or a client with a key of its own."""

from __future__ import annotations

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response

from rejoinder.agent.config import Settings
from rejoinder.agent.server.access import error_response, is_passed_on, may_call, shown
from rejoinder.agent.server.keys import Keys
from rejoinder.agent.server.operating.clock import steady_seconds


class Readers:
    """Decides who may read the calls of a server.

    Without the setting ``calls_key``, only programs on this machine may, of a server that listens only here.
    Other clients and proxies get the answer of a path that is not there. A proxy that names no client looks
    like this machine, so the page is off where ``public_url`` says that there is one.
    """

    def __init__(self, settings: Settings) -> None:
        self._keys = Keys(settings.calls_key.split(), steady_seconds)
        self._here = settings.local and not settings.public_url

    @property
    def possible(self) -> bool:
        """Whether anybody may."""
        return self._keys.needed or self._here

    def deny_page(self, request: HTTPConnection) -> Response | None:
        """Return the answer to a client that may not see the page itself, which has no call in it."""
        if self._keys.needed:
            return None
        if not self._here or is_passed_on(request):
            return PlainTextResponse("Not Found\n", 404)
        # A foreign name can be made to resolve to this machine, so the page has to have a name of it.
        host = request.headers.get("host", "")
        if not may_call(f"http://{host}", host, (), local=True):
            reason = f"calls cannot be read at {host[:64]}: use a name of this machine, as 127.0.0.1"
            return error_response(403, reason)
        return None

    def deny(self, request: HTTPConnection) -> Response | None:
        """Return the answer to a client that may not read calls, None where it may."""
        if denied := self.deny_page(request):
            return denied
        origin, host = request.headers.get("origin"), request.headers.get("host", "")
        if not may_call(origin, host, (), local=not self._keys.needed):
            return error_response(403, f"pages from {origin} may not read calls")
        if self._keys.needed and not self._keys.is_key(key := shown(request.scope)):
            none = "calls are read with a key of the setting calls_key, as a bearer token"
            wrong = "this key is none of those in the setting calls_key"
            return error_response(401, wrong if key else none)
        return None
