"""Server-sent events over HTTP, and cleanup when a stream ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

T = TypeVar("T")

KEEP_ALIVE_SECONDS = 5.0
"""A silent stream sends a comment after this time, in seconds. Proxies close silent connections after 30 s or
more."""
EVENT_SEND_SECONDS = 5.0
"""The stream ends when its client takes no bytes for this long, in seconds."""
KEEP_ALIVE = ": still here\n\n"
"""A comment that keeps proxies from closing a silent stream."""
MEDIA_TYPE = "text/event-stream"
"""The media type of a stream of events."""
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers of a stream. Without the second one nginx collects 4 KB of events before it sends them."""
DONE_EVENT = "data: [DONE]\n\n"
"""The last event of a stream of chat completions."""


def data(message: dict[str, Any]) -> str:
    """Return an event with a JSON message, which is on one line."""
    return f"data: {json.dumps(message)}\n\n"


class EventStream(StreamingResponse):
    """A stream of events. It ends when the client leaves or stops reading.

    end: awaited when the stream is over, in every case, even if it never began.
    """

    def __init__(self, events: AsyncIterable[str], end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        super().__init__(events, headers=STREAM_HEADERS, media_type=MEDIA_TYPE)
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream. Cancelling ends the stream and its source."""

        async def soon(message: Message) -> None:
            async with asyncio.timeout(EVENT_SEND_SECONDS):
                await send(message)

        try:
            await super().__call__(scope, receive, soon)
        except TimeoutError:
            pass  # the client no longer reads, so no error can reach it
        finally:
            if isinstance(self.body_iterator, AsyncGenerator):
                await self.body_iterator.aclose()
            await self._end()


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``. Raises ClientDisconnect where the client leaves first.

    Read the request's body before. A client that leaves cancels ``work``, and so does cancelling.
    """

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.create_task(work), asyncio.create_task(leave())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.wait((working, leaving))
