"""A chat server of any ``Kind`` on loopback: it checks requests and streams chunks as that kind does."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from support.servers.chat_kinds import Kind

MODEL = "org/model"
THOUGHT = "The user greets me."
TEXT = ["Good ", "morning", ". Grüße 🎉"]
CALLED = ("weather", '{"city": "Rome"}')
KNOWN_FIELDS = frozenset(
    "messages model stream max_tokens max_completion_tokens tools tool_choice parallel_tool_calls "
    "stream_options temperature".split()
)


class ChatFake:
    """A server with one model, ``MODEL``.

    scenario: "answer", "endless", "breaks" after the first words, or "overloaded".
    requests: bodies of the chat requests. listed: how often the models were listed.
    left: set when a client has closed a connection in the middle of an answer.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.scenario = "answer"
        self.requests: list[dict[str, Any]] = []
        self.listed = 0
        self.left = asyncio.Event()
        self.url = ""
        self._handlers: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def aclose(self) -> None:
        """End the connections that clients have left open."""
        for writer in self._handlers.values():
            writer.transport.abort()
        await asyncio.gather(*filter(None, self._handlers))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._handlers[task] = writer
        try:
            while head := await _head(reader):
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1]) if length else 0)
                await self._respond(head.split(b" ")[1].decode(), body, reader, writer)
        except ConnectionError:
            self.left.set()
        finally:
            del self._handlers[task]
            writer.close()

    async def _respond(
        self, path: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if path == "/v1/models":
            self.listed += 1
            owner = self.kind.owned_by or MODEL
            model = {"id": MODEL, "object": "model", "created": 0, "owned_by": owner}
            return _plain(writer, 200, {"object": "list", "data": [model]})
        assert path == "/v1/chat/completions", path
        request = json.loads(body)
        self.requests.append(request)
        if refused := self._refused(request):
            status, message = refused
            wait = "Retry-After: 7\r\n" if self.scenario == "overloaded" else ""
            return _plain(writer, status, self.kind.error(status, message), wait)
        if not request.get("stream"):
            message = {"role": "assistant", "content": ""}
            choice = {"index": 0, "message": message, "finish_reason": "length"}
            return _plain(writer, 200, {"id": "1", "object": "chat.completion", "choices": [choice]})
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for event in self._events(request):
            await _send(writer, event)
        if self.scenario == "endless":
            if not await reader.read(1):
                raise ConnectionResetError
        elif self.scenario == "breaks" and not self.kind.breaks:
            writer.transport.abort()
        else:
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    def _refused(self, request: dict[str, Any]) -> tuple[int, str] | None:
        kind = self.kind
        assert not request.keys() - KNOWN_FIELDS, request.keys()
        assert all(isinstance(one["role"], str) and "content" in one for one in request["messages"])
        limit = request.get("max_tokens", request.get("max_completion_tokens"))
        assert isinstance(limit, int)
        if self.scenario == "overloaded":
            return kind.overload
        for name in sorted(kind.refuses & request.keys()):
            instead = ": use max_completion_tokens" if name == "max_tokens" else ""
            where = f"[{{'type': 'extra_forbidden', 'loc': ('body', '{name}')}}]{instead}"
            return (422 if kind.error.__name__ == "detail" else 400), where
        if kind.zero and limit == 0:
            return kind.zero
        if kind.missing and request["model"] != MODEL:
            status, message = kind.missing
            return status, message.format(request["model"])
        return None

    def _events(self, request: dict[str, Any]) -> list[str]:
        kind = self.kind
        events = [kind.ping] if kind.ping else []
        if kind.role == "first":
            first = kind.event(self._chunk({"role": "assistant", "content": ""}))
            events.append(first.removesuffix(kind.end) + kind.first_end)
        if kind.thoughts:
            thought = {"content": "" if kind.role == "each" else None, kind.thoughts: THOUGHT}
            events.append(kind.event(self._chunk(thought)))
        events += [kind.event(self._chunk({"content": piece})) for piece in TEXT]
        if self.scenario == "endless":
            return events
        if self.scenario == "breaks":
            return [*events, kind.breaks] if kind.breaks else events
        events.append(kind.event(self._chunk({"content": ""})))  # a token without text yet
        if tools := request.get("tools"):
            assert tools[0]["function"]["name"] == CALLED[0]
            events += [kind.event(self._chunk({"tool_calls": [piece]})) for piece in kind.calls(*CALLED)]
        finish = "tool_calls" if tools else kind.finish
        events.append(kind.event(self._chunk({"content": ""}, finish)))
        if (request.get("stream_options") or {}).get("include_usage"):
            usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
            events.append(kind.event({**self._chunk({}), "choices": [], "usage": usage}))
        return [*events, f"{kind.start}[DONE]{kind.end}"] if kind.done else events

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        if self.kind.role == "each":
            delta = {"role": "assistant", **delta}
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {
            "id": "1", "object": "chat.completion.chunk", "created": 0, "model": MODEL, "choices": [choice]
        }  # fmt: skip


async def _head(reader: asyncio.StreamReader) -> bytes:
    """Return the head of the next request, b"" at the end of the connection."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


async def _send(writer: asyncio.StreamWriter, event: str) -> None:
    data = event.encode()
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
    await writer.drain()


def _plain(writer: asyncio.StreamWriter, status: int, body: dict[str, Any], more: str = "") -> None:
    data = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{more}Content-Length: {len(data)}\r\n\r\n"
    )
    writer.write(head.encode() + data)


@asynccontextmanager
async def running(kind: Kind) -> AsyncIterator[ChatFake]:
    """Run a server of a kind on loopback. It ends with the block, and its connections with it."""
    fake = ChatFake(kind)
    listener = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.url = "http://{}:{}/v1".format(*listener.sockets[0].getsockname())
    try:
        yield fake
    finally:
        listener.close()
        await fake.aclose()
        await listener.wait_closed()
