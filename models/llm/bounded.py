"""Size limits for HTTP responses: one limit for each event of a stream, and one for any other response."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

MAX_LINE_BYTES = 2**20
"""Most bytes of one event, and of a response that is not a stream. A typical event has a few hundred."""
EVENT_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
"""Blank lines, which end an event.

https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""


class TooLong(Exception):
    """A server sent an event or a response of more than ``MAX_LINE_BYTES``."""


class Measure:
    """Counts the bytes of the current event, or of the whole response if ``events`` is false."""

    def __init__(self, events: bool) -> None:
        self._events = events
        self._size = 0
        self._tail = b""

    def take(self, chunk: bytes) -> None:
        """Count the next bytes. Raises TooLong above ``MAX_LINE_BYTES``."""
        self._size += len(chunk)
        if self._events:
            text = self._tail + chunk
            end = max(text.rfind(blank) + len(blank) * (blank in text) for blank in EVENT_ENDS)
            if end > 0:
                self._size = len(text) - end
            self._tail = text[-3:]
        if self._size > MAX_LINE_BYTES:
            what = "one event" if self._events else "the response"
            raise TooLong(f"{what} has more than {MAX_LINE_BYTES // 2**20} MiB")


async def bound(response: Any) -> None:
    """Limit the size of a response. This is an HTTPX response hook, called before the body is read.

    Only uncompressed responses can be limited, so request those. Raises TooLong for a compressed response.
    Cancelling changes nothing.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        raise TooLong("the response is compressed, though that was not asked for")
    response.aiter_raw = partial(_measured, response.aiter_raw, Measure(response.is_success))


async def _measured(read: Any, measure: Measure, *arguments: Any) -> AsyncGenerator[bytes, None]:
    async with aclosing(read(*arguments)) as chunks:
        async for chunk in chunks:
            measure.take(chunk)
            yield chunk
