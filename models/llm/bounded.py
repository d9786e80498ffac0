"""Responses of HTTP servers that cannot fill the memory: bounds for events of a stream, and for the rest."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

MAX_BYTES = 2**20
"""Bytes of one event, and of a response that is no stream. An event with one token has a few hundred."""
EVENT_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
"""Blank lines: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream"""


class TooLong(Exception):
    """A server sent more than ``MAX_BYTES`` at once."""


class Measure:
    """Counts the bytes of an event, or, where events do not count, of the whole. Raises TooLong."""

    def __init__(self, events: bool) -> None:
        self._events = events
        self._size = 0
        self._tail = b""

    def take(self, chunk: bytes) -> None:
        """Take the bytes that follow."""
        self._size += len(chunk)
        if self._events:
            text = self._tail + chunk
            end = max(text.rfind(blank) + len(blank) * (blank in text) for blank in EVENT_ENDS)
            if end > 0:
                self._size = len(text) - end
            self._tail = text[-3:]
        if self._size > MAX_BYTES:
            what = "one event" if self._events else "the response"
            raise TooLong(f"{what} has more than {MAX_BYTES // 2**20} MiB")


async def bound(response: Any) -> None:
    """Bound what is read of a response; a hook of HTTPX clients, which call it before they read the body.

    Only uncompressed responses can be bounded, so ask for those. Raises TooLong for another one.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        raise TooLong("the response is compressed, though that was not asked for")
    response.aiter_raw = partial(_measured, response.aiter_raw, Measure(response.is_success))


async def _measured(read: Any, measure: Measure, *arguments: Any) -> AsyncGenerator[bytes, None]:
    async with aclosing(read(*arguments)) as chunks:
        async for chunk in chunks:
            measure.take(chunk)
            yield chunk
