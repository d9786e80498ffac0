"""What a browser may do with the answers of the server: headers that every one of them has.

The page holds an API key, so only its own files run in it, and it reaches only its own server. For an answer
that is no page these headers change nothing.
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
