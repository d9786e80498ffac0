"""When the frames of a silent call are read."""

from __future__ import annotations

IDLE_READ_SECONDS = 0.2
"""Interval between two reads of a silent call, in seconds. Waking up for each frame is the cost of an idle
call."""
LONG_IDLE_SECONDS = 5.0
"""A caller silent for this long, in seconds, may be read later while other calls wait for a model. They share
the processor, and a silence is not urgent."""
LATEST_READ_SECONDS = 0.6
"""Longest interval between two reads of a silent call, in seconds."""
CLOCK_SECONDS = 0.001
"""Shortest wait, in seconds: some clocks have no finer resolution. A call closer than this to its read time
waits for the next one."""
GROUP_READ_SECONDS = 0.005
"""Silent calls due within this many seconds are read together: the caches are warm, and the models' threads
are interrupted less often."""


def until_next_read(now: float, began: float) -> float:
    """Return how many seconds a silent call waits before its next read. Both arguments are loop times.

    Read times have a fixed phase, set by when the call began. If they counted from the call's last frame, two
    calls that were once read in the same turn of the loop would stay together, and in the end all calls
    would. Calls whose read times are close are read together.
    """
    place = now + IDLE_READ_SECONDS - (now - began) % IDLE_READ_SECONDS
    wait = place - now + -place % GROUP_READ_SECONDS
    return wait if wait > CLOCK_SECONDS else wait + IDLE_READ_SECONDS


def may_skip_a_read(now: float, last_active: float, since: float) -> bool:
    """Return whether a silent call may skip one more read. All arguments are loop times, in seconds.

    last_active: of the last speech or event. since: of the last read.
    """
    return now - last_active >= LONG_IDLE_SECONDS and now - since + IDLE_READ_SECONDS <= LATEST_READ_SECONDS
