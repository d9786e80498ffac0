"""Measures what a second language model costs while nothing fails, and what a caller waits for if one fails.

Two servers run side by side: one has a single language model, and one has two. The models are a chat server
on loopback that answers at a fixed pace. Replies are requested in turn, once from each server, so that other
load of the machine meets both. The figures are milliseconds from the request for a reply to its first audio.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
from rich.table import Table
from websockets.asyncio.client import ClientConnection, connect

from rejoinder.agent.bench.callers.events import event_of
from rejoinder.agent.bench.chat_faults import FAULTS, HEALTHY, ONE, FaultyChat, faulty_chat
from rejoinder.agent.server.own_server import own_server
from rejoinder.pipeline.errors import PipelineError

DEADLINE_SECONDS = 0.5
"""All deadlines of the models."""
UNCOUNTED = 10
"""Default of ``uncounted``."""
EACH_FAULT = 2
"""Replies of each server for each fault: the third failure would open the breaker."""
SHORT_APOLOGY = "Sorry, not now."
"""Spoken where no model answers."""
WEATHER_QUESTION = {
    "type": "message",
    "role": "user",
    "content": [{"type": "input_text", "text": "How is the weather?"}],
}
"""What is asked in each reply."""


@dataclass(slots=True)
class FailoverWaits:
    """The waits in milliseconds of the server with one model and of that with two, in pairs.

    idle: while nothing fails. faults: for each fault.
    """

    idle: list[tuple[float, float]] = field(default_factory=list)
    faults: dict[str, list[tuple[float, float]]] = field(default_factory=dict)


async def measure(
    pairs: int,
    faults: Sequence[str] = FAULTS,
    uncounted: int = UNCOUNTED,
    tell: Callable[[], None] = lambda: None,
) -> FailoverWaits:
    """Measure both. pairs: replies of each server while nothing fails. tell: called after each pair.

    uncounted: those before the measurement, and between two faults, so that no breaker opens.
    Raises PipelineError if a reply has no audio. Cancelling ends the servers.
    """
    waits = FailoverWaits()
    async with AsyncExitStack() as stack:
        chat = await stack.enter_async_context(faulty_chat())
        single = await stack.enter_async_context(_called(chat, ONE))
        double = await stack.enter_async_context(_called(chat, f"{ONE} two"))

        async def ask(times: int) -> list[tuple[float, float]]:
            found = []
            for number in range(times):
                if number % 2:
                    found.append((await first_audio_ms(single), await first_audio_ms(double)))
                else:
                    later = await first_audio_ms(double)
                    found.append((await first_audio_ms(single), later))
                tell()
            return found

        await ask(uncounted)
        waits.idle = await ask(pairs)
        for fault in faults:
            chat.fault = fault
            waits.faults[fault] = await ask(EACH_FAULT)
            chat.fault = HEALTHY
            await ask(uncounted)
    return waits


def replies(pairs: int) -> int:
    """Return the number of pairs that ``measure`` asks for by default."""
    return UNCOUNTED + pairs + len(FAULTS) * (EACH_FAULT + UNCOUNTED)


@asynccontextmanager
async def _called(chat: FaultyChat, llm: str) -> AsyncIterator[ClientConnection]:
    """Serve with language models, and call that server."""
    limits = ("first_token_s", "first_clause_s", "between_tokens_s")
    table = {"url": chat.url, **dict.fromkeys(limits, DEADLINE_SECONDS)}
    tables = {name: {**table, "model": name} for name in llm.split()}
    models = {"VAD": "scripted:vad", "TURN": "", "STT": "scripted:stt", "LLM": llm, "TTS": "scripted:tts"}
    environment = {f"REJOINDER_{role}": spec for role, spec in models.items()}
    environment |= {"REJOINDER_MODELS": json.dumps(tables), "REJOINDER_APOLOGY": SHORT_APOLOGY}
    async with own_server({}, None, environment) as url:
        root = url.partition("/v1/")[0]
        async with connect(f"{root}/v1/realtime?model=default", proxy=None, compression=None) as socket:
            await event_of(socket, "conversation.created")
            yield socket


async def first_audio_ms(socket: ClientConnection) -> float:
    """Ask for a reply; return the milliseconds to its first audio, and stop the rest.

    Raises PipelineError if it has none. Cancelling may leave it running on the server.
    """
    asked = {"conversation": "none", "input": [WEATHER_QUESTION]}
    begun = time.perf_counter()
    await socket.send(json.dumps({"type": "response.create", "response": asked}))
    heard = await event_of(socket, "response.output_audio.delta", "response.done")
    if heard["type"] == "response.done":
        raise PipelineError(f"a reply ended without audio: {heard['response']['status_details']}")
    waited = 1000 * (time.perf_counter() - begun)
    await socket.send(json.dumps({"type": "response.cancel", "response_id": heard["response_id"]}))
    await event_of(socket, "response.done")
    return waited


def table(waits: FailoverWaits) -> Table:
    """Return the table for the terminal."""
    shown = Table(title="First audio, ms", title_justify="left", title_style="bold", box=None)
    for column in ("", "one model", "two models"):
        shown.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, percent in (("nothing fails, p50", 50), ("nothing fails, p95", 95)):
        shown.add_row(name, *_formatted(np.percentile(np.array(waits.idle), percent, axis=0)))
    for fault, found in waits.faults.items():
        shown.add_row(f"{fault}, longest", *_formatted(np.array(found).max(axis=0)))
    return shown


def median_difference(waits: FailoverWaits) -> float:
    """Return the median of what the second model adds to a reply while nothing fails, in milliseconds."""
    table = np.array(waits.idle)
    return float(np.median(table[:, 1] - table[:, 0]))


def _formatted(milliseconds: Sequence[float]) -> list[str]:
    return [f"{one:.1f}" for one in milliseconds]
