"""The samples of a soak: what /proc and /metrics say of the server, and what its callers counted."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from rejoinder.agent.bench.process import descendants, descriptors, processor_seconds, resident, threads
from rejoinder.agent.bench.soaking.tally import SoakTally
from rejoinder.pipeline.errors import PipelineError

METRIC_PREFIX = "rejoinder_"
"""Beginning of the names of the server's metrics. The benches do not import ``agent/metrics``."""
SCRAPE_SECONDS = 10.0
"""Longest wait for /metrics, in seconds."""


@dataclass(frozen=True, slots=True)
class SoakSample:
    """The server at one moment, and its callers since the sample before.

    at: seconds since the soak began. segment: number of restarts before. memory: resident bytes, with those
    of child processes. lag_p50_ms, lag_p99_ms: of the event loop; an upper bound of the bucket. calls: that
    run now. cores: busy ones. p50_ms, p95_ms: from the last word to the first audible sample; None without
    answers. happened: counts of the callers. wires: calls begun, by wire. lost: calls that the server ended
    or refused, by reason.
    """

    at: float
    segment: int
    memory: int
    descriptors: int
    threads: int
    tasks: int
    calls: int
    cores: float
    lag_p50_ms: float | None = None
    lag_p99_ms: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    happened: dict[str, int] = field(default_factory=dict)
    wires: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)


class Sampler:
    """Samples a server. process: its id. port: of HTTP. segment: number of restarts before."""

    def __init__(self, process: int, port: int, segment: int) -> None:
        self.process, self._port, self._segment = process, port, segment
        self._buckets: dict[float, float] = {}
        self._spent, self._at = processor_seconds(process), math.nan

    async def take(self, at: float, tally: SoakTally) -> SoakSample:
        """Return a sample. at: seconds since the soak began. tally: what its callers counted; begins at zero.

        Raises OSError or TimeoutError where the server does not answer; nothing is lost then. Cancelling
        changes nothing.
        """
        scraped = await scrape(self._port)
        spent, before = processor_seconds(self.process), self._spent
        memory = sum(map(resident, (self.process, *descendants(self.process))))
        held = descriptors(self.process), threads(self.process)
        taken = tally.taken()  # only now: a process that ends meanwhile raises, and its counts would be lost
        elapsed, self._spent, self._at = at - self._at, spent, at
        lags = histogram(scraped, "event_loop_lag_seconds")
        since = {bound: count - self._buckets.get(bound, 0.0) for bound, count in lags.items()}
        self._buckets = lags
        p50, p95 = np.percentile(taken.latencies, (50, 95)).tolist() if taken.latencies else (None, None)
        return SoakSample(
            round(at, 1),
            self._segment,
            memory,
            *held,
            int(total(scraped, "tasks")),
            int(total(scraped, "sessions")),
            round((spent - before) / elapsed, 3) if elapsed > 0.0 else 0.0,
            quantile(since, 0.5),
            quantile(since, 0.99),
            None if p50 is None else round(1000 * p50, 1),
            None if p95 is None else round(1000 * p95, 1),
            dict(taken.counts),
            dict(taken.wires),
            dict(taken.lost),
        )


Scraped = dict[str, list[tuple[dict[str, str], float]]]
"""The samples of /metrics, by name: labels and value."""


async def scrape(port: int) -> Scraped:
    """Return the metrics of a server on this machine. Raises OSError or TimeoutError.

    Cancelling closes the connection.
    """
    async with asyncio.timeout(SCRAPE_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            body = (await reader.read()).partition(b"\r\n\r\n")[2].decode()
        finally:
            writer.close()
    if not body:
        raise ConnectionError("the server has closed the connection without an answer")
    found: Scraped = {}
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def total(scraped: Scraped, name: str) -> float:
    """Return the sum of a metric over its labels."""
    return sum(value for _, value in scraped.get(METRIC_PREFIX + name, []))


def histogram(scraped: Scraped, name: str) -> dict[float, float]:
    """Return the cumulative buckets of a histogram without labels, by upper bound."""
    return {float(labels["le"]): value for labels, value in scraped.get(f"{METRIC_PREFIX}{name}_bucket", [])}


def quantile(buckets: dict[float, float], share: float) -> float | None:
    """Return the bound in ms below which a share of the values is, None where there are none."""
    most = max(buckets.values(), default=0.0)
    bounds = [bound for bound, count in sorted(buckets.items()) if count >= share * most > 0.0]
    return 1000.0 * bounds[0] if bounds and math.isfinite(bounds[0]) else None


class SoakJournal:
    """The file of a soak: one JSON object a line, the first with the settings. It is written as it goes."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = path.open("w", encoding="utf-8")
        self._write({"soak": about})

    def add(self, sample: SoakSample) -> None:
        """Write a sample."""
        self._write(asdict(sample))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, row: dict[str, Any]) -> None:
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()


def read_journal(path: Path) -> tuple[dict[str, Any], list[SoakSample]]:
    """Return the settings and the samples of a soak, also of one that was killed. Raises PipelineError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in _whole(lines)]
        return dict(rows[0]["soak"]), [SoakSample(**row) for row in rows[1:]]
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise PipelineError(f"{path} is not the file of a soak: {error}") from error


def _whole(lines: list[str]) -> Iterable[str]:
    """Return the lines without a last one that was not written to its end."""
    return lines if not lines or lines[-1].endswith("}") else lines[:-1]
