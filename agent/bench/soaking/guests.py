"""Clients of a soak without a spoken call: Home Assistant, text requests, and watchers of calls."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rejoinder.agent.bench.soaking.spoken_call import LineLost, open_stream
from rejoinder.agent.wires.wyoming.protocol import Event, Events, encode

GUEST_SECONDS = 30.0
"""Longest wait for an answer, in seconds."""
VANISH_SHARE = 0.2
"""Share of requests whose client leaves before the answer is complete."""
WYOMING_GARBAGE = (b"{\n", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100_000, b'{"type": "synthesize-chunk"}\n')
"""What the port does not expect."""
WATCH_RANGE = (1.0, 15.0)
"""A watcher leaves after this time, in seconds."""
AUDIO_CHUNK_EVENT_BYTES = 2048
"""Bytes of audio in one event of Wyoming: 64 ms at 16 kHz, as Home Assistant sends it."""
FORMAT = {"rate": 16_000, "width": 2, "channels": 1}
"""Format of that audio."""


async def ask_home(port: int, pcm: bytes, counts: Counter[str], chance: random.Random) -> None:
    """Ask for a transcript, for an answer to it, and for its speech. Raises LineLost. Cancelling vanishes.

    pcm: 16-bit mono at 16 kHz. counts: takes what happened.
    """
    leaves = chance.choice(("transcript", "handled", "audio")) if chance.random() < VANISH_SHARE else ""
    async with _connection(port) as (reader, writer):
        events = Events()
        if chance.random() < VANISH_SHARE / 2:
            counts["garbage"] += 1
            writer.write(chance.choice(WYOMING_GARBAGE))
            await _rest_of(reader)
            return
        pieces = [
            pcm[first : first + AUDIO_CHUNK_EVENT_BYTES]
            for first in range(0, len(pcm), AUDIO_CHUNK_EVENT_BYTES)
        ]
        chunks = [Event("audio-chunk", FORMAT, piece) for piece in pieces]
        for event in (Event("transcribe"), Event("audio-start", FORMAT), *chunks, Event("audio-stop")):
            writer.write(encode(event))
            await writer.drain()
        if leaves == "transcript":
            counts["vanished"] += 1
            return
        heard = await _event(reader, events, "transcript", "error")
        words = str(heard.data.get("text") or "hello")
        writer.write(encode(Event("transcript", {"text": words})))
        if leaves == "handled":
            counts["vanished"] += 1
            return
        said = await _event(reader, events, "handled", "not-handled", "error")
        writer.write(encode(Event("synthesize", {"text": str(said.data.get("text") or words)[:200]})))
        if leaves == "audio":
            await _event(reader, events, "audio-start", "error")
            counts["vanished"] += 1
            return
        await _event(reader, events, "audio-stop", "error")
        counts["hung up"] += 1


async def _event(reader: asyncio.StreamReader, events: Events, *types: str) -> Event:
    """Return the next event of one of these types. Events after it in the same bytes are dropped."""
    try:
        async with asyncio.timeout(GUEST_SECONDS):
            while data := await reader.read(2**16):
                for event in events.feed(data):
                    if event.type in types:
                        return event
    except TimeoutError:
        raise LineLost(f"no {types[0]} within {GUEST_SECONDS:g} s") from None
    raise LineLost(f"the server has closed the connection before {types[0]}")


async def ask_in_writing(port: int, counts: Counter[str], chance: random.Random) -> None:
    """Send a text request and read its stream. Raises LineLost. Cancelling vanishes."""
    question = [{"role": "user", "content": "What is the weather like today?"}]
    body = json.dumps({"model": "default", "stream": True, "max_tokens": 40, "messages": question}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    async with _connection(port) as (reader, writer):
        writer.write(head.encode() + b"Connection: close\r\nContent-Type: application/json\r\n\r\n" + body)
        status = await _head(reader)
        counts[f"HTTP {status}"] += 1
        if chance.random() < VANISH_SHARE:
            counts["vanished"] += 1
            return
        await _rest_of(reader)


async def watch(port: int, counts: Counter[str], chance: random.Random) -> None:
    """Watch a call for a while. Raises LineLost. Cancelling vanishes."""
    async with _connection(port) as (reader, writer):
        writer.write(b"GET /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        await _head(reader)
        listed = (await _rest_of(reader)).decode("utf-8", "replace")
    running = json.loads(listed[listed.find("{") : listed.rfind("}") + 1] or '{"data": []}')["data"]
    if not running:
        counts["watched nothing"] += 1
        return
    id_ = chance.choice(running)["id"]
    async with _connection(port) as (reader, writer):
        path = f"/v1/sessions/{id_}/events"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        counts[f"HTTP {await _head(reader)}"] += 1
        try:
            async with asyncio.timeout(chance.uniform(*WATCH_RANGE)):
                while await reader.read(2**16):
                    pass
        except TimeoutError:
            counts["watched"] += 1


@asynccontextmanager
async def _connection(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect for the length of the block, and break the connection off at its end."""
    reader, writer = await open_stream(port)
    try:
        yield reader, writer
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise LineLost(f"the connection broke: {error}") from error
    finally:
        writer.transport.abort()


async def _head(reader: asyncio.StreamReader) -> int:
    """Return the status of an HTTP response, whose head is read."""
    try:
        async with asyncio.timeout(GUEST_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
    except TimeoutError:
        raise LineLost(f"no answer within {GUEST_SECONDS:g} s") from None
    return int(head.split(None, 2)[1])


async def _rest_of(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the server closes the connection."""
    try:
        async with asyncio.timeout(GUEST_SECONDS):
            return await reader.read()
    except TimeoutError:
        raise LineLost(f"the answer has not ended within {GUEST_SECONDS:g} s") from None
