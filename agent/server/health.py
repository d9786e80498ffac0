"""``GET /healthz``: the number of calls, the load of the engines, and the level of load shedding."""

from __future__ import annotations

import asyncio
from typing import Any

from rejoinder.models.llm.failover.failover import Failover
from rejoinder.pipeline import Models, MonitoredLlm
from rejoinder.pipeline.engines.load_shedding import LoadShedder

LOADING = "loading models"
"""Status of ``GET /readyz`` while the models load."""
READY = "ready"
"""Status of ``GET /readyz`` when calls can begin. Any other status is an error message."""
LOAD_CHECK_SECONDS = 1.0
"""Interval between two measurements of the load."""


async def keep_looking(load_shedder: LoadShedder) -> None:
    """Measure the load and adjust load shedding once a second, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        load_shedder.look(loop.time())
        await asyncio.sleep(LOAD_CHECK_SECONDS)


def ended(models: Models | None) -> str:
    """Return why the language model can no longer answer, "" if it can."""
    llm = models.llm if models else None
    return llm.failed if isinstance(llm, MonitoredLlm) else ""


def away(models: Models | None) -> str:
    """Return that no language model answers for the moment, "" if one does or it is not known."""
    llm = models.llm if models else None
    return llm.away if isinstance(llm, Failover) else ""


def load(load_shedder: LoadShedder) -> dict[str, Any]:
    """Return the load as JSON.

    leaves_out: the level of load shedding. active_callers: mean number of callers with recent answers.
    one_more_ms: predicted time to answer one more caller, without the wait for the end of the turn; null
    where it would never be answered. For each engine: busy, its recent share of busy time; pressing, the
    share for urgent jobs; waiting, the number of queued jobs; oldest_ms, the age of the oldest; jobs, those
    run since the start; batch, their mean number in a step.
    """
    measured = load_shedder.load
    more = measured.predicted(measured.callers + 1)
    return {
        "leaves_out": load_shedder.level.name.lower(),
        "active_callers": round(measured.callers, 1),
        "one_more_ms": None if more == float("inf") else round(more * 1000),
        "engines": {
            engine.name: {
                "busy": round(busy, 2),
                "pressing": round(pressing, 2),
                "waiting": engine.waiting,
                "oldest_ms": round(engine.age * 1000),
                "jobs": engine.stats.jobs,
                "batch": round(engine.stats.jobs / max(engine.stats.steps, 1), 2),
            }
            for engine, (busy, pressing) in zip(load_shedder.engines, load_shedder.shares, strict=True)
        },
    }
