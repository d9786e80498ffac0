"""Measures latency with several simultaneous callers.

Arrivals are an open loop: the schedule of all turns is fixed in advance. A late answer does not delay the
next question, which would hide the lateness (coordinated omission). Each caller holds one call and speaks in
it repeatedly. If an answer still plays when the caller's next turn is due, the caller interrupts it. Latency
counts from the planned last sample of the words. A turn is lost if the next one begins before its answer.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from rich.console import RenderableType

from rejoinder.agent.bench.callers.caller import LiveCaller, open_call
from rejoinder.agent.bench.cases.levels import at_level
from rejoinder.agent.bench.cases.recordings import Recording, background, speech_end
from rejoinder.agent.bench.engine_work import EngineWork, difference, engine_work
from rejoinder.agent.bench.latency import (
    ANSWER_WAIT_SECONDS,
    BACKGROUND_SECONDS,
    CALL_FAILED,
    NOISE_LEAD_SECONDS,
    ClipResult,
    Count,
    answer_to,
    count,
    mean_waterfall,
)
from rejoinder.agent.bench.process import processor_seconds
from rejoinder.agent.bench.reports.waterfall import Parts, summary_table, waterfall
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.client.socket import CallLost

REST_SECONDS = 4.0
"""Mean time from the end of a caller's words to the caller's next ones, for the answer and a short pause."""
SCATTER = 0.25
"""Largest deviation of a turn from the mean time, as a share of it."""
MOST_TAIL_SECONDS = 1.0
"""Most audio of a recording after its last word, so that the end of a file delays no next turn."""


@dataclass(frozen=True, slots=True)
class LoadedRecording:
    """A recording at 24 kHz, loaded before the calls, because loading takes as long as an answer."""

    recording: Recording
    audio: Any
    noise: Any
    ends: int

    @classmethod
    def of(cls, recording: Recording) -> LoadedRecording:
        """Load a recording. Raises RecordingsMissing."""
        audio = at_level(recording.load(CLIENT_RATE))  # one caller says recordings of several people
        noise, ends = background(audio, CLIENT_RATE, BACKGROUND_SECONDS), speech_end(audio, CLIENT_RATE)
        return cls(recording, audio[: ends + int(MOST_TAIL_SECONDS * CLIENT_RATE)], noise, ends)

    @property
    def about(self) -> tuple[str, str, str, str | None, float]:
        """The fields of a result that describe the recording."""
        one = self.recording
        return one.set, one.path.name, one.speaker, one.text, self.ends / CLIENT_RATE


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """A turn of a caller. at: its planned time, in seconds of the level."""

    at: float
    spoken: LoadedRecording


@dataclass(frozen=True, slots=True)
class Level:
    """The results of one number of callers.

    every_s: planned mean time from a turn to the same caller's next one. load_levels: number of answers
    committed at each load level of the server. processor_s: CPU seconds of a server that the bench started,
    None for another. turns: the parts of each answered turn's latency. engines: the work of that server's
    engines in the level, by role.
    """

    sessions: int
    idle: int
    seconds: float
    every_s: float
    counted: Count
    parts: Sequence[tuple[str, float]]
    load_levels: Mapping[int, int]
    processor_s: float | None
    turns: Sequence[Parts] = ()
    engines: Mapping[str, EngineWork] = field(default_factory=dict)

    @property
    def cores(self) -> float | None:
        """Mean number of busy cores, None for a server that the bench did not start."""
        return None if self.processor_s is None else self.processor_s / self.seconds


def plan(
    recordings: Iterable[LoadedRecording], sessions: int, seconds: float, seed: int = 0
) -> list[list[PlannedTurn]]:
    """Return the turns of each caller in ``seconds``, at least one each.

    recordings: an endless iterator, such as that of ``itertools.cycle``.
    """
    generator, following = random.Random(f"{seed}/{sessions}"), iter(recordings)
    callers = []
    for caller in range(sessions):
        at, turns = REST_SECONDS * (caller + generator.random()) / sessions, list[PlannedTurn]()
        while not turns or at < seconds:
            turns.append(PlannedTurn(at, next(following)))
            at += turns[-1].spoken.ends / CLIENT_RATE
            at += REST_SECONDS * generator.uniform(1.0 - SCATTER, 1.0 + SCATTER)
        callers.append(turns)
    return callers


def every(callers: Sequence[Sequence[PlannedTurn]]) -> float:
    """Return the planned mean seconds from a turn to the same caller's next one."""
    lengths = [turn.spoken.ends / CLIENT_RATE for turns in callers for turn in turns]
    return REST_SECONDS + fmean(lengths)


async def run(
    url: str,
    key: str | None,
    process: int | None,
    callers: Sequence[Sequence[PlannedTurn]],
    idle: int,
    tell: Callable[[ClipResult], None],
) -> Level:
    """Hold the calls of a level and return its results. Cancelling ends the calls.

    process: id of the server's process if the bench started it. idle: number of additional idle callers.
    """
    before, began = _processor(process), time.perf_counter()
    worked = await _work(url, process)
    start = asyncio.get_running_loop().time() + NOISE_LEAD_SECONDS + 0.5
    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(_call(url, key, turns, start, tell)) for turns in callers]
    results = [result for call in calls for result in call.result()]
    spent = _processor(process)
    used = None if spent is None or before is None else spent - before
    lasted = time.perf_counter() - began
    committed = Counter(result.level for result in results if result.level is not None)
    parts, counted = mean_waterfall(results), count(results)
    turns = [result.parts for result in results if result.latency_ms is not None and result.parts]
    worked = difference(worked, await _work(url, process))
    return Level(len(callers), idle, lasted, every(callers), counted, parts, committed, used, turns, worked)


async def _work(url: str, process: int | None) -> dict[str, EngineWork]:
    return {} if process is None else await engine_work(url)


async def _call(
    url: str, key: str | None, turns: Sequence[PlannedTurn], start: float, tell: Callable[[ClipResult], None]
) -> list[ClipResult]:
    """Hold one call and return the results of its turns. Their times count from loop time ``start``."""
    loop, results = asyncio.get_running_loop(), list[ClipResult]()
    await asyncio.sleep(start + turns[0].at - NOISE_LEAD_SECONDS - loop.time())
    try:
        async with open_call(url, key, turns[0].spoken.noise) as caller:
            for turn, after in zip(turns, [*turns[1:], None], strict=True):
                ends = turn.at + turn.spoken.ends / CLIENT_RATE
                patience = after.at - NOISE_LEAD_SECONDS - ends if after else ANSWER_WAIT_SECONDS
                results.append(await _turn(caller, turn, start + turn.at, patience))
                tell(results[-1])
    except CallLost as error:
        for turn in turns[len(results) :]:
            results.append(ClipResult(*turn.spoken.about, outcome=CALL_FAILED, error=str(error)))
            tell(results[-1])
    return results


async def _turn(caller: LiveCaller, turn: PlannedTurn, at: float, patience: float) -> ClipResult:
    """Speak at loop time ``at``, and wait for the answer, at most the given number of seconds."""
    loop, spoken = asyncio.get_running_loop(), turn.spoken
    await asyncio.sleep(at - NOISE_LEAD_SECONDS - loop.time())
    await caller.stop()
    caller.errors.clear()  # they concern earlier turns
    begin = caller.now + int((at - loop.time()) * CLIENT_RATE)  # in the past, if the line opened too late
    lead = np.resize(spoken.noise, max(0, begin - caller.microphone.position))
    caller.say(np.concatenate((lead, spoken.audio)))
    return await answer_to(caller, begin + spoken.ends, spoken.about, begin, patience)


def _processor(process: int | None) -> float | None:
    return None if process is None else processor_seconds(process)


def tables(levels: Sequence[Level]) -> list[RenderableType]:
    """Return the tables for the terminal: statistics per level, and a mean waterfall for each."""
    rows = []
    for level in levels:
        cores = "–" if level.cores is None else f"{level.cores:.2f}"
        asked = f"{level.counted.answered} of {level.counted.clips}"
        name = f"{level.sessions}" + (f" + {level.idle} idle" if level.idle else "")
        committed = ", ".join(f"{one}: {often}" for one, often in sorted(level.load_levels.items()))
        rows.append((name, [asked, str(level.counted.cut_off), committed, cores], level.counted.latency))
    title = "Planned last sample of speech to first audible sample, in ms, by callers"
    columns = ("answered", "cut off", "load levels", "cores")
    shown: list[RenderableType] = [summary_table(title, columns, rows)]
    for level in levels:
        if level.parts:
            callers = f"{level.sessions} caller{'s' if level.sessions > 1 else ''}"
            shown.append(waterfall(level.parts, f"Where it goes with {callers}, mean"))
    return shown


def report(levels: Sequence[Level]) -> dict[str, Any]:
    """Return the figures as JSON data; ``rejoinder plan`` reads them."""
    return {
        "every_s": fmean(level.every_s for level in levels),
        "levels": [
            {
                "sessions": level.sessions,
                "idle": level.idle,
                "seconds": level.seconds,
                "asked": level.counted.clips,
                "processor_s": level.processor_s,
                "cores": level.cores,
                **asdict(level.counted),
                "load_levels": {str(one): often for one, often in sorted(level.load_levels.items())},
                "waterfall": [{"name": name, "ms": value} for name, value in level.parts],
                "turns": [dict(parts) for parts in level.turns],
                "engines": {role: asdict(work) for role, work in level.engines.items()},
            }
            for level in levels
        ],
    }


def draw(levels: Sequence[Level], path: Path) -> None:
    """Write a PNG of the latency percentiles over the number of callers."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    sessions = [level.sessions for level in levels]
    for name, style in (("p50", "o-"), ("p95", "s-"), ("p99", "^:")):
        values = [getattr(level.counted.latency, name) or float("nan") for level in levels]
        axes.plot(sessions, values, style, label=name)
    for level in levels:
        answered = f"{level.counted.answered} of {level.counted.clips}"
        axes.annotate(answered, (level.sessions, 0), xytext=(0, 4), textcoords="offset points", ha="center")
    axes.set_xlabel("callers at the same time (below the curves: turns answered)")
    axes.set_ylabel("last word to first sound, ms")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sessions, [str(each) for each in sessions])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path)
