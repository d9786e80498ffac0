"""The faults: how each is caused, once, and what its victim gets."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psutil
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from rejoinder.agent.bench.callers.attacks import LONGEST_TURN_SECONDS, Talker
from rejoinder.agent.bench.callers.events import event_of
from rejoinder.agent.bench.faults.server import Subject

VICTIM_SECONDS = 20.0
"""Longest wait of a victim for its answer, in seconds."""
LOCKED_SECONDS = 3.0
"""How long another process locks the cache, in seconds."""
NO_DESCRIPTOR_SECONDS = 3.0
"""How long a server is without descriptors, in seconds."""


async def ask(call: ClientConnection, words: str) -> dict[str, Any]:
    """Type something in a call, and return the response. Cancelling stops the wait."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}
    await call.send(json.dumps({"type": "conversation.item.create", "item": item}))
    await call.send(json.dumps({"type": "response.create"}))
    return dict((await event_of(call, "response.done"))["response"])


async def typed(subject: Subject, words: str) -> str:
    """Call, type something, and return what the caller gets. Cancelling ends the call."""
    try:
        async with (
            asyncio.timeout(VICTIM_SECONDS),
            connect(subject.url, proxy=None, compression=None) as call,
        ):
            await event_of(call, "conversation.created")
            response = await ask(call, words)
    except (OSError, TimeoutError, WebSocketException) as failure:
        return f"no call: {type(failure).__name__}"
    error = (response.get("status_details") or {}).get("error") or {}
    return f"{response['status']}: {error['message']}" if error else str(response["status"])


async def talk(url: str, turns: int) -> list[float]:
    """Hold a call; return the times to the first audio of its answers in ms. Cancelling ends it."""
    async with connect(url, proxy=None, max_size=None, compression=None) as call:
        talker = Talker(call)
        running = [asyncio.create_task(talker.feed()), asyncio.create_task(talker.listen())]
        try:
            for _ in range(turns):
                async with asyncio.timeout(LONGEST_TURN_SECONDS):
                    await talker.turn()
        except (TimeoutError, ConnectionError):
            pass  # its turns count as lost
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    return talker.times


def on_word(words: str) -> Callable[[Subject], Awaitable[str]]:
    """Return a cause: a caller types these words."""
    return lambda subject: typed(subject, words)


async def disk_full(subject: Subject) -> str:
    """Let no file grow, as on a full disk, while a caller asks. Cancelling ends the call."""
    with subject.limited(resource.RLIMIT_FSIZE, subject.traces.stat().st_size + 10):
        return await typed(subject, "It is fine.")


async def cache_locked(subject: Subject) -> str:
    """Empty the file of the cache, and lock it while a caller asks. Cancelling ends the call."""
    with closing(sqlite3.connect(subject.answers, isolation_level=None)) as other:
        other.execute("DELETE FROM answers")
        other.execute("BEGIN EXCLUSIVE")
        got = "completed" if await talk(subject.url, 1) else "no answer"
        await asyncio.sleep(LOCKED_SECONDS)
    return got


async def no_descriptors(subject: Subject) -> str:
    """Leave the server without descriptors while a caller wants to call. Cancelling ends the call."""
    room = psutil.Process(subject.pid).num_fds() + 2
    with subject.limited(resource.RLIMIT_NOFILE, room):
        held = [socket.create_connection(("127.0.0.1", subject.port)) for _ in range(room)]
        calling = asyncio.create_task(typed(subject, "It is fine."))
        await asyncio.sleep(NO_DESCRIPTOR_SECONDS)
        late = "" if calling.done() else "waits, then "
        for one in held:
            one.close()
    return late + await calling


async def clock_jumps(subject: Subject) -> str:
    """Set the wall clock six hours ahead, then back by twelve. Cancelling ends the call."""
    got = []
    for hours in (6, -6, 0):
        subject.clock.write_text(str(3600 * hours))
        got.append(await typed(subject, "It is fine."))
    return got[0] if len(set(got)) == 1 else ", ".join(got)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. times: how often it is caused in a round. logged: words of its line in the log, "" for none.

    metric: the beginning of the name of the series that it moves, "" for none.
    """

    name: str
    cause: Callable[[Subject], Awaitable[str]]
    times: int
    logged: str
    metric: str


FAULTS_TO_CAUSE = (
    Fault(
        "voice raises", on_word("Please raise now."), 5, " failed: faulty-tts", "errors_total{model_error,tts"
    ),
    Fault("voice out of memory", on_word("Please memory now."), 5, " failed: faulty-tts", "errors_total"),
    Fault(
        "voice's thread ends", on_word("Please exit now."), 5, " failed: faulty-tts", "engine_failed_steps"
    ),
    Fault("language model panics", on_word("model panic."), 5, " failed: faulty-llm", "engine_failed_steps"),
    Fault("voice hangs", on_word("Please hang now."), 1, "the step is given up", "engine_hung_steps"),
    Fault("disk full", disk_full, 3, "cannot write the traces file", "faults_total{trace_file"),
    Fault("cache locked", cache_locked, 1, "an answer was not stored", "faults_total{cache"),
    Fault("no descriptors", no_descriptors, 1, "Too many open files", "faults_total{descriptors"),
    Fault("clock jumps", clock_jumps, 1, "the wall clock jumped", "faults_total{clock"),
)
"""All faults."""
