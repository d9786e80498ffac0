"""Measures what failover costs while nothing fails: ``python agent/bench/failover.py``.

Two servers run side by side: one has a single language model, and one has two. Both models are a chat server
on loopback that streams tokens at a fixed pace. Replies are requested in turn, once from each server, so that
other load of the machine meets both. The figure is the time from the request for a reply to its first audio.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from rejoinder.agent.bench.callers.events import event_of
from rejoinder.agent.server.own_server import own_server

PAIRS = 200
"""Replies of each server, by default."""
UNCOUNTED = 10
"""Replies of each server before the measurement."""
FIRST_TOKEN_SECONDS_OF_BENCH = 0.05
"""The chat server's time to the first token."""
BETWEEN_SECONDS_OF_BENCH = 0.01
"""Its time between two tokens."""
BENCHED_ANSWER = "It is sunny today, and it stays warm until the evening."
"""What it answers."""


def _event(text: str | None, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    body = f"data: {json.dumps({'id': '1', 'choices': [choice]})}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(body), body)


async def _chat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests on one connection, which the client keeps open."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            await reader.readexactly(int(length[1]) if length else 0)
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            await asyncio.sleep(FIRST_TOKEN_SECONDS_OF_BENCH)
            for word in BENCHED_ANSWER.split():
                writer.write(_event(word + " "))
                await writer.drain()
                await asyncio.sleep(BETWEEN_SECONDS_OF_BENCH)
            writer.write(_event(None, "stop") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    except (OSError, asyncio.IncompleteReadError):
        writer.close()


@asynccontextmanager
async def _called(llm: str) -> AsyncIterator[ClientConnection]:
    """Serve with a language model, and call that server."""
    models = {"VAD": "scripted:vad", "TURN": "", "STT": "scripted:stt", "LLM": llm, "TTS": "scripted:tts"}
    environment = {f"REJOINDER_{role}": spec for role, spec in models.items()}
    async with own_server({}, None, environment) as url:
        root = url.partition("/v1/")[0]
        async with connect(f"{root}/v1/realtime?model=default", proxy=None, compression=None) as socket:
            await event_of(socket, "conversation.created")
            yield socket


async def _wait(socket: ClientConnection) -> float:
    """Ask for a reply; return the milliseconds to its first audio, and cancel the rest."""
    ask: dict[str, Any] = {"type": "response.create", "response": {"conversation": "none"}}
    begun = time.perf_counter()
    await socket.send(json.dumps(ask))
    heard = await event_of(socket, "response.output_audio.delta")
    waited = 1000 * (time.perf_counter() - begun)
    await socket.send(json.dumps({"type": "response.cancel", "response_id": heard["response_id"]}))
    await event_of(socket, "response.done")
    return waited


async def run(pairs: int) -> None:
    """Print the table. Cancelling ends the servers."""
    async with AsyncExitStack() as stack:
        chat = await asyncio.start_server(_chat, "127.0.0.1", 0)
        stack.callback(chat.close)
        url = "openai:http://{}:{}/v1#".format(*chat.sockets[0].getsockname())
        single = await stack.enter_async_context(_called(f"{url}one"))
        double = await stack.enter_async_context(_called(f"{url}one {url}two"))
        waits: list[tuple[float, float]] = []
        for number in range(UNCOUNTED + pairs):
            if number % 2:
                first = await _wait(single), await _wait(double)
            else:
                later = await _wait(double)
                first = await _wait(single), later
            waits.append(first)
    table = np.array(waits[UNCOUNTED:])
    print("| language models | p50 | p95 |\n|---|---|---|")
    for name, ms in zip(("one", "two, the second idle"), table.T, strict=True):
        p50, p95 = np.percentile(ms, [50, 95])
        print(f"| {name} | {p50:.2f} ms | {p95:.2f} ms |")
    differences = table[:, 1] - table[:, 0]
    print(f"\nmedian difference of a pair: {np.median(differences):+.2f} ms")


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS))
