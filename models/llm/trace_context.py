"""The trace context of a call in the requests to a language model's server."""

from __future__ import annotations

import re
from typing import Any

from rejoinder.pipeline.upstream import traceparent

TRACEPARENT = "traceparent"
"""The header of the trace context (https://www.w3.org/TR/trace-context/#traceparent-header)."""

_VALID = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def passed_on(header: str) -> str:
    """Return a client's trace context as it is, for the request that follows from its own; "" if invalid."""
    return header if _VALID.fullmatch(header) else ""


async def carry(request: Any) -> None:
    """Add the trace context to a request, if there is one. This is an HTTPX request hook.

    It never waits, so there is nothing to cancel.
    """
    if context := traceparent():
        request.headers[TRACEPARENT] = context
