"""Sessions that are connected to several servers of one machine, and what they cost there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from rejoinder.agent.bench.callers.attacks import FLAGS
from rejoinder.agent.bench.callers.idle import idle_callers
from rejoinder.agent.bench.process import processor_seconds, resident
from rejoinder.agent.bench.soaking.samples import histogram, quantile, scrape
from rejoinder.agent.server.own_server import free_port, own_process

AIM_MS = 10.0
"""Longest lag of an event loop, in milliseconds, 99th percentile: half of a caller's frame."""
LAG = "event_loop_lag_seconds"
"""Name of the histogram."""
CONNECTED_SECONDS = 3.0
"""Time from the last connection to the measurement, in seconds."""


@dataclass(frozen=True, slots=True)
class OneServer:
    """A server of this machine. url: of its Realtime wire. process: its number."""

    port: int
    url: str
    process: int


@dataclass(frozen=True, slots=True)
class Connected:
    """Some sessions and what they cost.

    sessions: connected to all servers together. is_sending: whether each sends 20 ms of silence 50 times a
    second. lag_p50_ms, lag_p99_ms: of the event loop of the worst server; the upper bound of a histogram's
    bucket, None above its last one. server_cores, client_cores: average cores that all servers, and all
    clients, used. session_bytes: resident memory of the servers for each session.
    """

    sessions: int
    is_sending: bool
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    server_cores: float
    client_cores: float
    session_bytes: float


@asynccontextmanager
async def servers(processes: int, most: int) -> AsyncIterator[list[OneServer]]:
    """Run servers with scripted models for the length of the block. most: sessions of each.

    Raises PipelineError if one does not start. Cancelling ends them.
    """
    environment = {"REJOINDER_VAD": "scripted:vad", "REJOINDER_MAX_SESSIONS": str(most)}
    async with AsyncExitStack() as stack:
        started = []
        for _ in range(processes):
            port = free_port()
            serving = own_process(FLAGS, environment=environment, port=port)
            started.append(OneServer(port, *await stack.enter_async_context(serving)))
        yield started


async def connect_and_measure(
    running: Sequence[OneServer], sessions: int, is_sending: bool, seconds: float
) -> Connected:
    """Connect sessions to all servers in equal parts, and measure for some seconds.

    Raises CallLost if a session cannot begin or is lost. Cancelling hangs up.
    """
    each = sessions // len(running)
    before = sum(resident(one.process) for one in running)
    async with AsyncExitStack() as stack:
        calling = (idle_callers(one.url, None, each, is_sending) for one in running)
        clients = await asyncio.gather(*map(stack.enter_async_context, calling))
        await asyncio.sleep(CONNECTED_SECONDS)
        lags = [histogram(await scrape(one.port), LAG) for one in running]
        spent = sum(processor_seconds(one.process) for one in running)
        await asyncio.sleep(seconds)
        used = sum(processor_seconds(one.process) for one in running) - spent
        held = sum(resident(one.process) for one in running) - before
        late = [
            {bound: count - old[bound] for bound, count in histogram(await scrape(one.port), LAG).items()}
            for one, old in zip(running, lags, strict=True)
        ]
    return Connected(
        each * len(running),
        is_sending,
        _worst([quantile(one, 0.5) for one in late]),
        _worst([quantile(one, 0.99) for one in late]),
        used / seconds,
        sum(one.cores for one in clients),
        held / max(1, each * len(running)),
    )


def _worst(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def connected_table(found: Sequence[Connected], processes: int) -> Table:
    """Return the table for the terminal."""
    shown = Table(
        title=f"Sessions of {processes} servers", title_justify="left", title_style="bold", box=None
    )
    for name in (
        "sessions",
        "send audio",
        "lag p50 ms",
        "lag p99 ms",
        "server cores",
        "client cores",
        "KB each",
    ):
        shown.add_column(name, justify="right", no_wrap=True)
    for one in found:
        shown.add_row(
            f"{one.sessions:,}",
            "yes" if one.is_sending else "no",
            _most(one.lag_p50_ms),
            _most(one.lag_p99_ms),
            f"{one.server_cores:.2f}",
            f"{one.client_cores:.2f}",
            f"{one.session_bytes / 1000:.0f}",
        )
    return shown


def _most(lag: float | None) -> str:
    return "> 1000" if lag is None else f"<= {lag:.0f}"


def connected_report(found: Sequence[Connected]) -> list[dict[str, Any]]:
    """Return the figures for JSON, with whether each reaches the aim."""
    return [
        {**asdict(one), "reaches_aim": one.lag_p99_ms is not None and one.lag_p99_ms <= AIM_MS}
        for one in found
    ]
