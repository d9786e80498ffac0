"""``GET /healthz``: how many calls there are, how busy they keep the engines, and what is left out for it."""

from __future__ import annotations

import asyncio
from typing import Any

from rejoinder.pipeline.engines.load_shedding import LoadShedder

LOADING, READY = "loading models", "ready"
"""Statuses of ``GET /readyz``; each other one says what is wrong."""
LOOK_SECONDS = 1.0


async def keep_looking(load_shedder: LoadShedder) -> None:
    """Let the ladder measure and step once a second, until this is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        load_shedder.look(loop.time())
        await asyncio.sleep(LOOK_SECONDS)


def load(load_shedder: LoadShedder) -> dict[str, Any]:
    """Return the load in JSON's words.

    leaves_out: the rung of the ladder. active_callers: with answers of late; one more would get one in
    one_more_ms, the wait for the end of the turn not counted (null: never). Of each engine: busy, its share
    of time, of late, and with what is pressing; waiting, jobs, and for how long the oldest of them does; jobs
    run since the start, and how many there were in a step at the mean.
    """
    measured = load_shedder.load
    more = measured.predicted(measured.callers + 1)
    return {
        "leaves_out": load_shedder.level.name.lower(),
        "active_callers": measured.callers,
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
