"""Security headers of every response, also inside of an integrator's program.

The page holds an API key. So it may run only its own files and reach only its own server. For responses other
than the page, these headers have no effect.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",  # audio worklets too
        "style-src 'self'",
        "img-src 'self'",  # the icon
        "media-src 'self'",  # recordings
        "connect-src 'self'",  # WebSockets of the same host too (CSP 3, 6.7.2.8; Safari since 15.4)
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Content Security Policy 3 (https://www.w3.org/TR/CSP3/)."""
HEADERS = [
    ("Content-Security-Policy", POLICY),
    ("Cross-Origin-Opener-Policy", "same-origin"),  # a page that opens this one gets no handle on it
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "microphone=(self), camera=(), geolocation=()"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
]
"""Headers of every answer."""
STARTS = ("http.response.start", "websocket.http.response.start")
"""Messages with the headers of a response."""
STRICT_TRANSPORT = ("Strict-Transport-Security", "max-age=15552000")
"""For 180 days browsers open this host by TLS only (RFC 6797)."""


class SecurityHeaders:
    """Adds ``HEADERS`` to the answers of an application that another program's server serves."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection. Cancelling ends it."""

        async def sent(message: Message) -> None:
            if message["type"] in STARTS:
                found = MutableHeaders(scope=message)
                for name, value in HEADERS:
                    found.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, sent)


def headers(tls: bool) -> list[tuple[str, str]]:
    """Return the headers of every answer.

    tls: whether the host is served by TLS only. Leave it out for this machine: browsers would then refuse the
    other ports of ``localhost``, too.
    """
    return [*HEADERS, STRICT_TRANSPORT] if tls else HEADERS
