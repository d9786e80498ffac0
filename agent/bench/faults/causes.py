"""The faults: how each is caused, once, and what its victim gets."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from rejoinder.agent.bench.attacks.measuring import talk
from rejoinder.agent.bench.callers.events import event_of
from rejoinder.agent.bench.faults.subject import Subject
from rejoinder.agent.bench.process import descriptors

VICTIM_SECONDS = 20.0
"""Longest wait of a victim for its answer, in seconds."""
LOCKED_SECONDS = 3.0
"""How long another process locks the cache, in seconds."""
NO_DESCRIPTOR_SECONDS = 3.0
"""How long a server is without descriptors, in seconds."""
VICTIM = 200
"""The number of a caller beside those who talk."""
FINE = "It is fine."
"""Words on which no model fails."""
COMPLETED = "completed"
"""What a victim gets that notices nothing."""


async def ask(call: ClientConnection, words: str) -> str:
    """Type something in a call, and return the status of the answer, with its error.

    Cancelling stops the wait.
    """
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}
    await call.send(json.dumps({"type": "conversation.item.create", "item": item}))
    await call.send(json.dumps({"type": "response.create"}))
    response = (await event_of(call, "response.done"))["response"]
    error = (response.get("status_details") or {}).get("error")
    return f"{response['status']}: {error['message']}" if error else str(response["status"])


async def typed(subject: Subject, words: str) -> str:
    """Call, type something, and return what the caller gets. Cancelling ends the call."""
    try:
        async with (
            asyncio.timeout(VICTIM_SECONDS),
            connect(subject.url, proxy=None, compression=None) as call,
        ):
            await event_of(call, "session.created")
            return await ask(call, words)
    except (OSError, TimeoutError, WebSocketException) as failure:
        return f"no call: {type(failure).__name__}"


def on_words(*words: str) -> Callable[[Subject], Awaitable[str]]:
    """Return a cause: callers type these words, one after the other."""

    async def cause(subject: Subject) -> str:
        return _joined([await typed(subject, each) for each in words])

    return cause


async def disk_full(subject: Subject) -> str:
    """Let no file grow, as on a full disk, while a caller asks. Cancelling ends the call."""
    with subject.limited("RLIMIT_FSIZE", subject.traces.stat().st_size + 10):
        return _joined([await typed(subject, FINE) for _ in range(3)])


async def cache_locked(subject: Subject) -> str:
    """Empty the file of the cache, and lock it while a caller asks. Cancelling ends the call."""
    with closing(sqlite3.connect(subject.answers, isolation_level=None)) as other:
        other.execute("DELETE FROM answers")
        other.execute("BEGIN EXCLUSIVE")
        times, _ = await talk(subject.url, 1, VICTIM)
        await asyncio.sleep(LOCKED_SECONDS)
    return COMPLETED if times else "no answer"


async def no_descriptors(subject: Subject) -> str:
    """Leave the server without descriptors while a caller wants to call. Cancelling ends the call."""
    room = descriptors(subject.pid) + 2
    with subject.limited("RLIMIT_NOFILE", room):
        held = [socket.create_connection(("127.0.0.1", subject.port)) for _ in range(room)]
        calling = asyncio.create_task(typed(subject, FINE))
        try:
            await asyncio.sleep(NO_DESCRIPTOR_SECONDS)
            late = "" if calling.done() else "waits, then "
        finally:
            for one in held:
                one.close()
    return late + await calling


async def clock_is_set(subject: Subject) -> str:
    """Set the wall clock six hours ahead, then back by twelve. Cancelling ends the call."""
    got = []
    for shift in ("+6h", "-6h", "+0"):
        subject.shift.write_text(shift)
        got.append(await typed(subject, FINE))
        await asyncio.sleep(1.0)
    return _joined(got)


def _joined(got: list[str]) -> str:
    return " / ".join(dict.fromkeys(got))


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. logged: words of its line in the log.

    metric: the metric that it moves, and one of its labels. sets_clock: whether it sets the wall clock.
    """

    name: str
    cause: Callable[[Subject], Awaitable[str]]
    logged: str
    metric: tuple[str, str]
    sets_clock: bool = False


CAUSES = (
    Fault(
        "the voice raises",
        on_words("Please raise now.", "Please panic now.", "Please exit now."),
        " failed: faulty-tts",
        ("engine_failed_steps_total", "faulty-tts"),
    ),
    Fault(
        "no memory for the voice",
        on_words("Please memory now."),
        " failed: faulty-tts",
        ("engine_failed_steps_total", "faulty-tts"),
    ),
    Fault(
        "the language model raises",
        on_words("model raise.", "model panic.", "model exit."),
        " failed: faulty-llm",
        ("engine_failed_steps_total", "faulty-llm"),
    ),
    Fault(
        "the voice hangs",
        on_words("Please hang now."),
        "the step is given up",
        ("engine_hung_steps", "faulty-tts"),
    ),
    Fault("disk full", disk_full, "cannot write the traces file", ("faults_total", "trace_file")),
    Fault("cache locked", cache_locked, "an answer was not stored", ("cached_answers_total", "failed")),
    Fault(
        "no descriptors",
        no_descriptors,
        "new connections wait until others close",
        ("faults_total", "descriptors"),
    ),
    Fault("clock set", clock_is_set, "the wall clock jumped", ("faults_total", "clock"), True),
)
"""All faults."""
