"""Security headers of every response.

The page holds an API key. So it may run only its own files and reach only its own server. For responses other
than the page, these headers have no effect.
"""

from __future__ import annotations

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",  # audio worklets too
        "style-src 'self'",
        "img-src 'self'",  # the icon
        "connect-src 'self'",  # WebSockets of the same host too (CSP 3, 6.7.2.8; Safari since 15.4)
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Content Security Policy 3 (https://www.w3.org/TR/CSP3/)."""
HEADERS = [
    ("Content-Security-Policy", POLICY),
    ("Permissions-Policy", "microphone=(self), camera=(), geolocation=()"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
]
"""Headers of every answer."""
