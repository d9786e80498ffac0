"""Server-sent events over HTTP, and what of a stream must not outlive it."""

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
"""So long nothing is sent before a comment is: proxies give up on a silent connection after 30 s and more."""
SEND_SECONDS = 5.0
"""A client that takes nothing for so long gets nothing more."""
KEEP_ALIVE = ": still here\n\n"
DONE = "data: [DONE]\n\n"


def data(message: dict[str, Any]) -> str:
    """Return an event that is JSON, on one line."""
    return f"data: {json.dumps(message)}\n\n"


class EventStream(StreamingResponse):
    """A stream of events. A client that leaves ends it, and one that stops reading, too.

    end: is called when the stream is over, however it ends, even where it never began.
    """

    def __init__(self, events: AsyncIterable[str], end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # nginx would keep the events until there are 4 KB of them.
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream. Cancelling ends it, and what makes it."""

        async def soon(message: Message) -> None:
            async with asyncio.timeout(SEND_SECONDS):
                await send(message)

        try:
            await super().__call__(scope, receive, soon)
        except TimeoutError:
            pass  # nobody is there to be told
        finally:
            if isinstance(self.body_iterator, AsyncGenerator):
                await self.body_iterator.aclose()
            await self._end()


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what work returns. Raises ClientDisconnect where the client leaves first, which cancels it.

    The body of the request has to be read by then.
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
