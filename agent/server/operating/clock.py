"""Notices when the wall clock of the machine jumps: an operator, NTP or a hypervisor has set it."""

from __future__ import annotations

import asyncio
import logging
import time

from rejoinder.agent.faults import CLOCK_FAULT, count_fault

log = logging.getLogger(__name__)

CLOCK_CHECK_SECONDS = 1.0
"""Interval between two looks at the clock, in seconds."""
CLOCK_JUMP_SECONDS = 1.0
"""Least change between two looks that is a jump, in seconds. NTP slews by half a millisecond a second."""
STEADY_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine is suspended, where the system has such a clock."""


def steady_seconds() -> float:
    """Return seconds of a clock that is never set."""
    return time.clock_gettime(STEADY_CLOCK)


async def watch_clock() -> None:
    """Log and count each jump of the wall clock against the steady one, until cancelled."""
    apart = wall_clock_lead()
    while True:
        await asyncio.sleep(CLOCK_CHECK_SECONDS)
        now = wall_clock_lead()
        if abs(now - apart) >= CLOCK_JUMP_SECONDS:
            count_fault(CLOCK_FAULT)
            log.warning("the wall clock jumped by %+.1f s: timestamps of calls do too", now - apart)
        apart = now


def wall_clock_lead() -> float:
    """Return the seconds between the two clocks, read at the same moment."""
    while True:
        steady, wall = time.clock_gettime(STEADY_CLOCK), time.time()
        if time.clock_gettime(STEADY_CLOCK) - steady < CLOCK_JUMP_SECONDS / 2:  # else the process was stopped
            return wall - steady
