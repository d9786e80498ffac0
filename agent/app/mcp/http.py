"""Opens streamable HTTP to an MCP server, and bounds its answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from rejoinder.agent.app.mcp.public_only import PublicTransport

CONNECT_S = 10.0
"""Longest wait for a connection to the server, in seconds."""
SILENT_S = 300.0
"""Longest silence within an answer, in seconds, as in the SDK's own client. Tools have time-outs."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Most bytes of an answer in JSON. The SDK bounds an event of a stream itself, at 1 MiB."""


@asynccontextmanager
async def open_http(
    url: str,
    headers: Mapping[str, str],
    auth: httpx2.Auth | None,
    forgotten: Callable[[], None],
    public_only: bool = False,
) -> AsyncGenerator[TransportStreams, None]:
    """Open the streams of messages to and from a server.

    They close with the block, and when it is cancelled.
    forgotten: called when the server does not know the session any more, such as after a restart. It has not
    carried out that request, and a new session has to be opened (MCP specification of 2025-11-25, "Session
    Management"). public_only: connect to public addresses only.
    """
    plain = {**headers, "accept-encoding": "identity"}  # a small compressed answer may be a huge one
    timeout = httpx2.Timeout(CONNECT_S, read=SILENT_S)
    plain_transport = httpx2.AsyncHTTPTransport()
    reaching = PublicTransport(plain_transport) if public_only else plain_transport
    transport = BoundedTransport(reaching, forgotten)
    async with (
        httpx2.AsyncClient(headers=plain, timeout=timeout, auth=auth, transport=transport) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Bounds the size of answers that are not streams of events, and notices that a session is forgotten."""

    def __init__(self, transport: httpx2.AsyncBaseTransport, forgotten: Callable[[], None]) -> None:
        self._transport = transport
        self._forgotten = forgotten

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return its answer; to read too long a body raises StreamError.

        Cancelling closes the request's connection.
        """
        response = await self._transport.handle_async_request(request)
        if response.status_code == HTTPStatus.NOT_FOUND and "mcp-session-id" in request.headers:
            self._forgotten()
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            plain = response.headers.get("content-encoding", "identity") == "identity"
            response.stream = BoundedStream(response.stream, MAX_ANSWER_BYTES if plain else 0)
        return response

    async def aclose(self) -> None:
        """Close the connections. Cancelling leaves the others open."""
        await self._transport.aclose()


class BoundedStream(httpx2.AsyncByteStream):
    """A body that raises StreamError behind its ``longest`` byte."""

    def __init__(self, stream: httpx2.AsyncByteStream, longest: int) -> None:
        self._stream = stream
        self._left = longest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Return the body, part by part. Cancelling leaves the rest unread."""
        async for part in self._stream:
            self._left -= len(part)
            if self._left < 0:
                raise httpx2.StreamError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes, or compressed")
            yield part

    async def aclose(self) -> None:
        """Close the body. There is nothing to cancel."""
        await self._stream.aclose()
