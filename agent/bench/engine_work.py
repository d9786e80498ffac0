"""The work of a server's engines, as its metrics count it."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

JOBS_METRIC = "rejoinder_engine_batch_jobs_sum"
"""The metric that counts the jobs of an engine."""
BUSY_METRIC = "rejoinder_engine_busy_seconds_total"
"""The metric that counts the seconds in which it ran."""
SCRAPE_SECONDS = 10.0
"""Longest wait for the metrics, in seconds."""


@dataclass(frozen=True, slots=True)
class EngineWork:
    """The work of the engines of one role: jobs, and the seconds in which they ran."""

    jobs: float = 0.0
    busy_s: float = 0.0


async def engine_work(url: str) -> dict[str, EngineWork]:
    """Return the work since the start of a server on this machine, by role. Raises OSError.

    Cancelling stops the wait only.
    """
    text = await asyncio.to_thread(_scrape, urlsplit(url).port or 80)
    return by_role(text_string_to_metric_families(text))


def _scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SCRAPE_SECONDS) as answer:
        return str(answer.read(), "utf-8")


def by_role(families: Iterable[Metric]) -> dict[str, EngineWork]:
    """Return the work in a server's metrics, by role."""
    jobs: dict[str, float] = {}
    busy: dict[str, float] = {}
    for family in families:
        for sample in family.samples:
            if (one := {JOBS_METRIC: jobs, BUSY_METRIC: busy}.get(sample.name)) is not None:
                one[sample.labels["role"]] = one.get(sample.labels["role"], 0.0) + sample.value
    return {role: EngineWork(number, busy.get(role, 0.0)) for role, number in jobs.items()}


def difference(before: Mapping[str, EngineWork], after: Mapping[str, EngineWork]) -> dict[str, EngineWork]:
    """Return the work between two moments, by role; roles without work are left out."""
    none = EngineWork()
    return {
        role: EngineWork(one.jobs - before.get(role, none).jobs, one.busy_s - before.get(role, none).busy_s)
        for role, one in after.items()
        if one.jobs > before.get(role, none).jobs
    }
