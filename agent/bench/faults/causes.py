"""The faults: how each is caused, once, and what its victim gets."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from rejoinder.agent.bench.attacks.measuring import append_event, talk
from rejoinder.agent.bench.callers.events import event_of
from rejoinder.agent.bench.faults.bad_network import bad_network
from rejoinder.agent.bench.faults.subject import FAKETIME, Subject
from rejoinder.agent.bench.process import descriptors
from rejoinder.agent.client.audio import CLIENT_RATE

VICTIM_SECONDS = 20.0
"""Longest wait of a victim for its answer, in seconds."""
LOCKED_SECONDS = 20.0
"""How long another process locks a database, in seconds: about as long as the others talk."""
LOCK_SECONDS = 5.0
"""Longest wait for the lock, in seconds."""
NO_DESCRIPTOR_SECONDS = 3.0
"""How long a server is without descriptors, in seconds."""
SHOUT_SECONDS = 0.4
"""Length of the audio on which the recogniser fails, in seconds."""
SILENCE_SECONDS = 2.5
"""Length of the silence after it, in seconds."""
RECORDING_BYTES = 10_000
"""Most bytes of a recording on a full disk, beyond those of the log."""
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
    return status(await event_of(call, "response.done"))


def status(done: dict[str, Any]) -> str:
    """Return the status of the reply in an event ``response.done``, with its error."""
    response = done["response"]
    error = (response.get("status_details") or {}).get("error")
    return f"{response['status']}: {error['message']}" if error else str(response["status"])


async def in_a_call(subject: Subject, act: Callable[[ClientConnection], Awaitable[str]]) -> str:
    """Call, and return what an act in the call returns, or why there is no call. Cancelling ends it."""
    try:
        async with (
            asyncio.timeout(VICTIM_SECONDS),
            connect(subject.url, proxy=None, compression=None) as call,
        ):
            await event_of(call, "session.created")
            return await act(call)
    except (OSError, TimeoutError, WebSocketException) as failure:
        return f"no call: {type(failure).__name__}"


async def typed(subject: Subject, words: str) -> str:
    """Call, type something, and return what the caller gets. Cancelling ends the call."""
    return await in_a_call(subject, partial(ask, words=words))


async def spoken(url: str, turns: int) -> str:
    """Call, say something, and return what the caller gets. Cancelling ends the call."""
    times, _ = await talk(url, turns, VICTIM)
    return COMPLETED if len(times) == turns else f"{turns - len(times)} of {turns} answers are missing"


def on_words(*words: str) -> Callable[[Subject], Awaitable[str]]:
    """Return a cause: callers type these words, one after the other."""

    async def cause(subject: Subject) -> str:
        return _joined([await typed(subject, each) for each in words])

    return cause


async def shouted(subject: Subject) -> str:
    """Call, say something so loud that the recogniser fails, and return what the caller gets.

    Cancelling ends the call.
    """
    noise = np.random.default_rng(0).choice((-32_768, 32_767), int(SHOUT_SECONDS * CLIENT_RATE))
    silence = bytes(2 * int(SILENCE_SECONDS * CLIENT_RATE))

    async def shout(call: ClientConnection) -> str:
        for pcm in (noise.astype("<i2").tobytes(), silence):
            await call.send(append_event(pcm))
        return status(await event_of(call, "response.done"))

    return await in_a_call(subject, shout)


async def disk_full(subject: Subject) -> str:
    """Let the traces file not grow, as on a full disk, while callers ask. Cancelling ends the call."""
    with subject.limited("RLIMIT_FSIZE", subject.traces.stat().st_size + 10):
        return _joined([await typed(subject, FINE) for _ in range(3)])


async def log_full(subject: Subject) -> str:
    """Let the log not grow while callers ask. Cancelling ends the call."""
    with subject.limited("RLIMIT_FSIZE", subject.log.stat().st_size):
        got = [await typed(subject, FINE) for _ in range(3)]
    return _joined([*got, await typed(subject, FINE)])  # when there is room, the log says what is missing


async def recording_full(subject: Subject) -> str:
    """Let recordings grow for some seconds only while a caller talks. Cancelling ends the call."""
    with subject.limited("RLIMIT_FSIZE", subject.log.stat().st_size + RECORDING_BYTES):
        return await spoken(subject.url, 4)


def locked(name: str) -> Callable[[Subject], Awaitable[str]]:
    """Return a cause: a database of the server is locked while callers talk. name: of its file."""

    async def cause(subject: Subject) -> str:
        with closing(await asyncio.to_thread(_lock, subject.folder / name)):
            got = await spoken(subject.url, 1)
            await asyncio.sleep(LOCKED_SECONDS)
        return got

    return cause


def _lock(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, LOCK_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        database.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        database.close()
        raise TimeoutError(f"{path.name} could not be locked: {error}") from error
    return database


async def cache_locked(subject: Subject) -> str:
    """Empty the file of the cache, so that answers are stored, and lock it. Cancelling ends the call."""
    with closing(await asyncio.to_thread(_lock, subject.answers)) as database:
        database.execute("DELETE FROM answers")
        database.execute("COMMIT")
    return await locked(subject.answers.name)(subject)


async def no_descriptors(subject: Subject) -> str:
    """Leave the server without descriptors while a caller wants to call. Cancelling ends the call."""
    room = descriptors(subject.pid) + 2
    with ExitStack() as held:
        held.enter_context(subject.limited("RLIMIT_NOFILE", room))
        for _ in range(room):
            held.enter_context(await asyncio.to_thread(socket.create_connection, ("127.0.0.1", subject.port)))
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(typed(subject, FINE))
            await asyncio.sleep(NO_DESCRIPTOR_SECONDS)
            late = "" if waiting.done() else "waits, then "
            held.close()
    return late + waiting.result()


async def clock_is_set(subject: Subject) -> str:
    """Set the wall clock six hours ahead, then back by twelve. Cancelling ends the call."""
    got = []
    for shift in ("+6h", "-6h", "+0"):
        subject.shift.write_text(shift)
        await asyncio.sleep(1.5)  # the file is read once a second
        got.append(await typed(subject, FINE))
    return _joined(got)


async def over_a_bad_network(subject: Subject) -> str:
    """Call over a network with a delay, jitter and loss. Cancelling ends the call."""
    async with bad_network(subject.port) as port:
        bad = urlsplit(subject.url)._replace(netloc=f"127.0.0.1:{port}")
        return await spoken(urlunsplit(bad), 2)


def _joined(got: list[str]) -> str:
    return " / ".join(dict.fromkeys(got))


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. logged: words of its line in the log; empty: the server cannot notice it.

    metric: the metric that it moves, and one of its labels. once: it is not repeated while the others talk.
    caches: whether the server keeps answers; the others are then answered without the models. sets_clock:
    whether it sets the wall clock. needs: packages without which it is not caused.
    """

    name: str
    cause: Callable[[Subject], Awaitable[str]]
    logged: str
    metric: tuple[str, str]
    once: bool = False
    caches: bool = False
    sets_clock: bool = False
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> str:
        """What has to be installed for it and is not; "" if nothing is."""
        if self.sets_clock and not FAKETIME:
            return "libfaketime"
        return " and ".join(name for name in self.needs if not find_spec(name))


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
        needs=("onnx", "onnxruntime"),
    ),
    Fault(
        "the language model raises",
        on_words("model raise.", "model panic.", "model exit."),
        " failed: faulty-llm",
        ("engine_failed_steps_total", "faulty-llm"),
    ),
    Fault(
        "the recogniser raises", shouted, " failed: faulty-stt", ("engine_failed_steps_total", "faulty-stt")
    ),
    Fault(
        "the voice hangs",
        on_words("Please hang now."),
        "the step is given up",
        ("engine_hung_steps", "faulty-tts"),
        once=True,
    ),
    Fault(
        "the language model hangs",
        on_words("model hang."),
        "the step is given up",
        ("engine_hung_steps", "faulty-llm"),
        once=True,
    ),
    Fault("disk full: traces", disk_full, "cannot write the traces file", ("faults_total", "trace_file")),
    Fault("disk full: log", log_full, "of this log could not be written", ("faults_total", "log")),
    Fault(
        "disk full: recordings",
        recording_full,
        "has ended, the call goes on: File too large",
        ("recordings_total", "failed"),
    ),
    Fault(
        "cache locked",
        cache_locked,
        "an answer was not stored",
        ("cached_answers_total", "failed"),
        once=True,
        caches=True,
    ),
    Fault(
        "calls locked",
        locked("calls.db"),
        "calls are not kept now",
        ("kept_calls_total", "failed"),
        once=True,
    ),
    Fault(
        "conversations locked",
        locked("conversations.db"),
        "conversations are not kept",
        ("journal_writes_total", "failed"),
        once=True,
    ),
    Fault(
        "no descriptors",
        no_descriptors,
        "new connections wait until others close",
        ("faults_total", "descriptors"),
    ),
    Fault("clock set", clock_is_set, "the wall clock jumped", ("faults_total", "clock"), sets_clock=True),
    Fault("a bad network", over_a_bad_network, "", ("", "")),
)
"""All faults."""
