"""How long answers take when several people call at once.

Arrivals are an open loop: each turn has its time before the first one is spoken, and comes then, whatever
has become of the others; a late answer does not put off the next question, which would hide how late it was
(coordinated omission). Each turn is a call of its own, as in ``rejoinder bench``, and its latency counts from
the sample with which the words were planned to end.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType

from rejoinder.agent.bench_latency import (
    BACKGROUND_SECONDS,
    FAILED,
    LEAD_SECONDS,
    Count,
    Result,
    answer_to,
    count,
    mean_waterfall,
)
from rejoinder.agent.bench_soak import processor_seconds
from rejoinder.agent.caller import open_call
from rejoinder.agent.client import CallLost
from rejoinder.agent.player import RATE
from rejoinder.agent.recordings import Recording, background, speech_end
from rejoinder.agent.waterfall import summary_table, waterfall

EVERY_SECONDS = 6.0
"""From one turn of a caller to the next, on average: a question, its answer, and a moment."""
SCATTER = 0.25
"""Share of this time by which each turn may come sooner or later than after the mean."""


@dataclass(frozen=True, slots=True)
class Level:
    """What so many callers met. processor_s: of our own server, None for another's."""

    sessions: int
    idle: int
    seconds: float
    counted: Count
    parts: Sequence[tuple[str, float]]
    processor_s: float | None

    @property
    def cores(self) -> float | None:
        """Cores that were busy, on average."""
        return None if self.processor_s is None else self.processor_s / self.seconds


def arrivals(sessions: int, seconds: float, seed: int = 0) -> list[float]:
    """Return when turns begin, in seconds and in order; each caller's come about ``EVERY_SECONDS`` apart."""
    generator = random.Random(f"{seed}/{sessions}")
    planned = []
    for caller in range(sessions):
        at = EVERY_SECONDS * (caller + generator.random()) / sessions
        while at < seconds:
            planned.append(at)
            at += EVERY_SECONDS * generator.uniform(1.0 - SCATTER, 1.0 + SCATTER)
    return sorted(planned)


async def run(
    url: str,
    key: str | None,
    process: int | None,
    recordings: Sequence[Recording],
    sessions: int,
    idle: int,
    seconds: float,
    tell: Callable[[Result], None],
) -> Level:
    """Let so many callers call for so long; ``process`` is our own server's, ``idle`` the others' number."""
    planned = arrivals(sessions, seconds)
    spoken = [Spoken.of(recording) for recording in islice(cycle(recordings), len(planned))]
    before, began = _processor(process), time.perf_counter()
    start = asyncio.get_running_loop().time() + LEAD_SECONDS + 0.5
    async with asyncio.TaskGroup() as tasks:
        turns = [
            tasks.create_task(_turn(url, key, one, start + at, tell))
            for one, at in zip(spoken, planned, strict=True)
        ]
    results = [turn.result() for turn in turns]
    spent = _processor(process)
    used = None if spent is None or before is None else spent - before
    lasted = time.perf_counter() - began
    return Level(sessions, idle, lasted, count(results), mean_waterfall(results), used)


@dataclass(frozen=True, slots=True)
class Spoken:
    """A recording as a caller says it, 24 kHz: loaded before, because that takes the time of an answer."""

    recording: Recording
    audio: Any
    noise: Any
    ends: int

    @classmethod
    def of(cls, recording: Recording) -> Spoken:
        """Load a recording. Raises RecordingsMissing."""
        audio = recording.load(RATE)
        return cls(recording, audio, background(audio, RATE, BACKGROUND_SECONDS), speech_end(audio, RATE))


async def _turn(
    url: str, key: str | None, spoken: Spoken, at: float, tell: Callable[[Result], None]
) -> Result:
    """Call, speak at ``at`` by the loop's clock, and wait for the answer."""
    one = spoken.recording
    about = (one.set, one.path.name, one.speaker, one.text, spoken.ends / RATE)
    loop = asyncio.get_running_loop()
    await asyncio.sleep(at - LEAD_SECONDS - loop.time())
    try:
        async with open_call(url, key, spoken.noise) as caller:
            begin = caller.now + int((at - loop.time()) * RATE)  # behind now, if the line opened too late
            lead = np.resize(spoken.noise, max(0, begin - caller.microphone.position))
            caller.say(np.concatenate((lead, spoken.audio)))
            result = await answer_to(caller, begin + spoken.ends, about)
    except CallLost as error:
        result = Result(*about, outcome=FAILED, error=str(error))
    tell(result)
    return result


def _processor(process: int | None) -> float | None:
    return None if process is None else processor_seconds(process)


def tables(levels: Sequence[Level]) -> list[RenderableType]:
    """Return what the terminal shows: statistics per level, and where the time went in each."""
    rows = []
    for level in levels:
        cores = "–" if level.cores is None else f"{level.cores:.2f}"
        asked = f"{level.counted.answered} of {level.counted.clips}"
        name = f"{level.sessions}" + (f" + {level.idle} idle" if level.idle else "")
        rows.append((name, [asked, str(level.counted.cut_off), cores], level.counted.latency))
    title = "Planned last sample of speech to first audible sample, in ms, by callers"
    shown: list[RenderableType] = [summary_table(title, ("answered", "cut off", "cores"), rows)]
    for level in levels:
        if level.parts:
            callers = f"{level.sessions} caller{'s' if level.sessions > 1 else ''}"
            shown.append(waterfall(level.parts, f"Where it goes with {callers}, mean"))
    return shown


def report(levels: Sequence[Level]) -> dict[str, Any]:
    """Return the same for a machine; ``rejoinder plan`` reads it."""
    return {
        "every_s": EVERY_SECONDS,
        "levels": [
            {
                "sessions": level.sessions,
                "idle": level.idle,
                "seconds": level.seconds,
                "asked": level.counted.clips,
                "processor_s": level.processor_s,
                "cores": level.cores,
                **asdict(level.counted),
                "waterfall": [{"name": name, "ms": value} for name, value in level.parts],
            }
            for level in levels
        ],
    }


def draw(levels: Sequence[Level], path: Path) -> None:
    """Draw the percentiles over the number of callers as a PNG."""
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
