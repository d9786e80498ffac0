"""Measures the framework's own cost: CPU time per 20 ms frame and session, with scripted models.

There are two ways: a ``Session`` inside a process, and the real server with calls over loopback. The subject
runs in a separate process. All of its threads count; the callers' CPU time is counted by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich.table import Table

from rejoinder.agent.bench.overhead.calls import into_one, into_several, received, subject
from rejoinder.agent.bench.overhead.subject import FRAME_SECONDS, Spent, Workload, hold_sessions

SESSION = "Session"
"""Way of the audio: into sessions in one process."""
WEBSOCKET = "WebSocket"
"""Way of the audio: over WebSockets into one server process, or into several ones."""
WARM_UP_SECONDS = 1.5
"""Time before the measurement, in seconds."""
SPEAKING = 10
"""One of this number of sessions speaks, at least one, in a run with speech."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """The cost of one load: CPU microseconds per frame and session, total cores, and lags of the loop in ms.

    answers: number of replies during the measurement. processes: servers, of which each has an equal share of
    the sessions; the cores are of all. caller_cores: cores that the callers use beside them, over WebSockets.
    """

    way: str
    sessions: int
    speaking: int
    microseconds: float
    cores: float
    lag_p50_ms: float
    lag_p99_ms: float
    answers: int
    processes: int = 1
    caller_cores: float = 0.0


def speakers(sessions: int, some: bool, one_in: int = SPEAKING) -> int:
    """Return the number of sessions that speak. one_in: sessions for each that speaks."""
    return max(1, sessions // one_in) if some else 0


def shares(load: Workload, processes: int) -> list[Workload]:
    """Return the parts of a load for several servers, as equal as possible."""

    def part(whole: int, one: int) -> int:
        return whole // processes + (one < whole % processes)

    return [
        replace(load, sessions=part(load.sessions, one), speaking=part(load.speaking, one))
        for one in range(processes)
    ]


def level(way: str, load: Workload, spent: Spent, processes: int = 1) -> Overhead:
    """Return the figures of a load from the subject's measurements."""
    cores = spent.processor / spent.seconds
    p50, p99 = (1000.0 * np.percentile(spent.lags, (50, 99))).tolist()
    each = cores * FRAME_SECONDS / load.sessions * 1e6
    counts = (each, cores, p50, p99, spent.answers, processes, spent.callers / spent.seconds)
    return Overhead(way, load.sessions, load.speaking, *counts)


async def measure(
    ways: Sequence[str],
    sessions: Sequence[int],
    seconds: float,
    vad: str,
    tell: Callable[[Overhead], None],
    settings: Mapping[str, object],
    one_in: int = SPEAKING,
    processes: int = 1,
    muted: bool = False,
) -> list[Overhead]:
    """Measure each way with each number of sessions, silent and speaking. Raises PipelineError.

    settings: of the server. one_in: as in ``speakers``. processes: servers over WebSockets. muted: as in
    ``Workload``; without the silent runs. Cancelling ends the subjects' processes.
    """
    levels = []
    for way in ways:
        for count in sessions:
            for some in (True,) if muted else (False, True):
                speaking = speakers(count, some, one_in)
                load = Workload(count, speaking, WARM_UP_SECONDS, seconds, muted)
                if way == SESSION:
                    spent = await _in_process(load, vad)
                elif processes == 1:
                    spent = await into_one(load, vad, settings)
                else:
                    spent = await into_several(shares(load, processes), vad, settings)
                levels.append(level(way, load, spent, processes))
                tell(levels[-1])
    return levels


async def _in_process(load: Workload, vad: str) -> Spent:
    async with subject(hold_sessions, load, vad) as pipe:
        return await received(pipe)


def table(levels: Sequence[Overhead]) -> Table:
    """Return the table for the terminal."""
    title = "Cost of the framework alone, in us of a frame"
    shown = Table(title=title, title_justify="left", title_style="bold", box=None)
    columns = ("", "sessions", "speaking", "us", "cores", "callers'", "lag ms", "p99", "answers")
    for column in columns:
        shown.add_column(column, justify="right" if column else "left", no_wrap=True)
    for one in levels:
        cores = (f"{one.cores:.2f}", f"{one.caller_cores:.2f}" if one.way == WEBSOCKET else "")
        figures = (f"{one.microseconds:.0f}", *cores, f"{one.lag_p50_ms:.1f}", f"{one.lag_p99_ms:.1f}")
        shown.add_row(one.way, str(one.sessions), str(one.speaking), *figures, str(one.answers))
    return shown
