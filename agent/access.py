"""Who may ask over HTTP: what a WebSocket's handshake is asked, and what a page's own requests do not say."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import HTTPConnection

from rejoinder.agent.client_secrets import NEEDS_KEY
from rejoinder.agent.keys import Keys, presented


def refused(
    request: HTTPConnection, keys: Keys, welcome: Callable[[str | None, str], bool]
) -> tuple[int, str] | None:
    """Return why a request is not answered, as a status and a reason; None: it is. A secret is no key here.

    A page that reads from its own server shows no origin, and names of others can be made to lead to this
    machine: where no key is needed, the host that is asked for has to be one whose pages may call.

    welcome: tells of an origin and a host whether such a page may call.
    """
    host = request.headers.get("host", "")
    hosts = [None] if keys.needed else [f"http://{host}", f"https://{host}"]
    origins = [request.headers["origin"]] if "origin" in request.headers else hosts
    if not any(welcome(origin, host) for origin in origins):
        return 403, f"pages from {origins[0]} may not ask; see the setting allowed_origins"
    known = keys.is_key(presented(request.headers.get("authorization")))
    return None if known else (401, NEEDS_KEY)
