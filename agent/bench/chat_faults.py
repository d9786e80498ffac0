"""A chat server on loopback that answers at a fixed pace, or fails in a chosen way."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

FIRST_TOKEN_SECONDS = 0.05
"""Default of ``FaultyChat.first_token_s``."""
PACE_SECONDS = 0.01
"""Time between two tokens of a healthy answer."""
CRAWL_SECONDS = 30.0
"""Time between two tokens of a slow answer, and how long a hung one lasts."""
WEATHER_ANSWER = "It is sunny today, and it stays warm until the evening."
"""The healthy answer."""
HEALTHY = ""
"""No fault."""
FAULTS = ("killed", "hung", "refused", "garbage", "slow", "dribbling", "empty")
"""The faults in front of the first clause: the connection is closed; no answer; HTTP 500; no events; a first
token after ``CRAWL_SECONDS``; a second one after that time; an answer without words."""
ONE = "one"
"""The name of the model that has the faults. All others are healthy."""
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
"""Begins an event stream."""
REFUSAL = b"HTTP/1.1 500 No\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
"""The answer of the fault "refused"."""


class FaultyChat:
    """The server.

    fault: of the model ``ONE``, for the requests from now on. first_token_s: seconds to the first token of a
    healthy answer. url: its address.
    """

    def __init__(self) -> None:
        self.fault = HEALTHY
        self.first_token_s = FIRST_TOKEN_SECONDS
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests on one connection, which the client keeps open. Cancelling closes it."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                body = json.loads(await reader.readexactly(int(length[1]) if length else 0))
                fault = self.fault if body["model"] == ONE else HEALTHY
                if not await _answer(writer, fault, self.first_token_s):
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _answer(writer: asyncio.StreamWriter, fault: str, first_token_s: float) -> bool:
    """Answer one request; return whether the connection goes on."""
    if fault in ("killed", "hung"):
        await asyncio.sleep(CRAWL_SECONDS if fault == "hung" else 0.0)
        return False
    if fault == "refused":
        writer.write(REFUSAL)
        return True
    writer.write(STREAM_HEAD)
    if fault == "garbage":
        writer.write(_chunk(b'data: {"choices": 3}\n\n'))
    await asyncio.sleep(CRAWL_SECONDS if fault == "slow" else first_token_s)
    for word in [] if fault == "empty" else WEATHER_ANSWER.split():
        writer.write(_event(word + " "))
        await writer.drain()
        await asyncio.sleep(CRAWL_SECONDS if fault in ("slow", "dribbling") else PACE_SECONDS)
    writer.write(_event(None, "stop") + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    return True


def _event(text: str | None, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return _chunk(f"data: {json.dumps({'id': '1', 'choices': [choice]})}\n\n".encode())


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


@asynccontextmanager
async def faulty_chat() -> AsyncIterator[FaultyChat]:
    """Serve for the length of the block. Cancelling ends it."""
    chat, busy = FaultyChat(), set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        busy.add(task)
        task.add_done_callback(busy.discard)
        with suppress(asyncio.CancelledError):  # asyncio would log it
            await chat.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    chat.url = "http://{}:{}/v1".format(*server.sockets[0].getsockname())
    try:
        yield chat
    finally:
        server.close()
        for task in list(busy):
            task.cancel()
        if busy:
            await asyncio.wait(busy)
