"""The work of a server's engines, as its metrics count it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from rejoinder.agent.bench.soaking.samples import Scraped, scrape
from rejoinder.agent.metrics.meters import METRIC_PREFIX


@dataclass(frozen=True, slots=True)
class EngineWork:
    """The work of the engines of one role: jobs, and the seconds in which they ran."""

    jobs: float
    busy_s: float


async def engine_work(url: str) -> dict[str, EngineWork]:
    """Return the work since the start of a server on this machine, by role. Raises OSError.

    Cancelling closes the connection.
    """
    return by_role(await scrape(urlsplit(url).port or 80))


def by_role(scraped: Scraped) -> dict[str, EngineWork]:
    """Return the work in a server's metrics, by role."""
    found: dict[str, EngineWork] = {}
    for labels, jobs in scraped.get(f"{METRIC_PREFIX}engine_jobs_total", []):
        busy = sum(
            seconds
            for other, seconds in scraped.get(f"{METRIC_PREFIX}engine_busy_seconds_total", [])
            if other == labels
        )
        so_far = found.get(labels["role"], EngineWork(0.0, 0.0))
        found[labels["role"]] = EngineWork(so_far.jobs + jobs, so_far.busy_s + busy)
    return found


def difference(before: Mapping[str, EngineWork], after: Mapping[str, EngineWork]) -> dict[str, EngineWork]:
    """Return the work between two moments, by role; roles without work are left out."""
    none = EngineWork(0.0, 0.0)
    return {
        role: EngineWork(one.jobs - before.get(role, none).jobs, one.busy_s - before.get(role, none).busy_s)
        for role, one in after.items()
        if one.jobs > before.get(role, none).jobs
    }
