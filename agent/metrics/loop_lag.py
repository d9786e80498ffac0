"""The delay of the event loop."""

from __future__ import annotations

import asyncio

from rejoinder.agent.metrics.measures import Measurement
from rejoinder.agent.metrics.meters import Meters

LAG_INTERVAL_SECONDS = 0.25
"""Interval between two measurements of the event loop's lag."""


async def measure_lag(meters: Meters) -> None:
    """Measure how late the event loop wakes up, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_INTERVAL_SECONDS
        await asyncio.sleep(LAG_INTERVAL_SECONDS)
        meters.record([Measurement("event_loop_lag_seconds", max(0.0, loop.time() - due))])
