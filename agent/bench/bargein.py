"""Measures how soon the agent stops for an interruption, and whether it goes on after a false one.

A real server runs in real time, with a caller that pauses its audio as the web page does. In each call the
agent tells a long story. The caller plays false interruptions over it, and then one real interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from rich.table import Table

from rejoinder.agent.bench.callers.caller import LiveCaller, open_call
from rejoinder.agent.bench.callers.turns import HeardReply
from rejoinder.agent.bench.cases.overlap import REAL, SHORT, OverlapSound
from rejoinder.agent.bench.cases.recordings import background
from rejoinder.agent.bench.reports.output import percentages
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.client.socket import CallLost

STORY = " ".join(
    f"On day {number} the ship sailed to the next island, and the people there told them about the weather."
    for number in ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
)
"""The answer of the scripted language model, long enough for every sound."""
STORYTELLER = f"scripted:llm|{STORY}"
"""A scripted language model with a long answer: interruptions do not depend on a real model."""
BEFORE_SECONDS = (1.0, 2.0)
"""Range of undisturbed speech of the agent before each sound, in seconds."""
STOP_WAIT_SECONDS = 1.5
"""Time after a sound in which the agent may still stop, in seconds."""
GAP_MS = 600.0
"""Longest gap in the agent's speech that counts as in time, in milliseconds."""
OUTCOME_WAIT_SECONDS = 15.0
"""Longest wait for the agent to speak, and for the outcome of a sound, in seconds."""
STOPPED = "stopped"
"""Outcome: the agent stopped."""
MISSED = "missed"
"""Outcome: the agent did not stop for a real interruption."""
RESUMED = "resumed"
"""Outcome: the agent went on after a false interruption."""
CALL_ENDED = "ended"
"""Outcome: a false interruption ended the reply, or the agent did not go on."""
CALL_FAILED = "call failed"
"""Outcome: the call was lost."""


@dataclass(frozen=True, slots=True)
class BargeinResult:
    """The result of one sound.

    outcome: for an interruption, STOPPED or MISSED; for a false one, RESUMED (even if the agent never paused)
        or CALL_ENDED; CALL_FAILED if the call was lost.
    stop_ms: from the first voiced sample of the sound to the last audible sample of the agent.
    gap_ms: the longest silence in the agent's speech, 0 if it did not pause.
    heard: the server's transcript.
    """

    kind: str
    name: str
    outcome: str
    stop_ms: float | None = None
    gap_ms: float | None = None
    heard: str = ""

    def __str__(self) -> str:
        """Return one line for the terminal."""
        took = next((f"{ms:4.0f} ms" for ms in (self.stop_ms, self.gap_ms) if ms is not None), "")
        return f"{self.outcome:8}{took:8} {self.kind}  {self.name}  {self.heard}"


async def measure(
    url: str, sounds: Sequence[OverlapSound], seed: int, tell: Callable[[BargeinResult], None]
) -> list[BargeinResult]:
    """Play all sounds over the agent, false ones before each interruption; pass each result to ``tell``.

    Cancelling ends the call.
    """
    false, draw = [sound for sound in sounds if not sound.is_real], Random(seed)
    draw.shuffle(false)
    calls = [[sound] for sound in sounds if sound.is_real] or [[]]
    share = -(-len(false) // len(calls))
    results: list[BargeinResult] = []
    for place, call in enumerate(calls):
        call[:0] = false[place * share : (place + 1) * share]
        left = list(call)
        try:
            async with open_call(url, background=background(call[-1].audio, CLIENT_RATE, 10.0)) as caller:
                await caller.ask()
                while left:
                    results.append(await over_the_agent(caller, left[0], draw.uniform(*BEFORE_SECONDS)))
                    tell(results[-1])
                    left.pop(0)
        except CallLost as error:
            results += [
                BargeinResult(sound.kind, sound.name, CALL_FAILED, heard=str(error)) for sound in left
            ]
    return results


async def over_the_agent(caller: LiveCaller, sound: OverlapSound, after: float) -> BargeinResult:
    """Play one sound after some seconds of undisturbed speech. Raises CallLost if the agent is silent.

    Cancelling leaves the sound playing and the call open.
    """
    reply = await _speaking(caller, caller.now, int(after * CLIENT_RATE))
    turns, holds = len(caller.turns), len(caller.holds)
    start = caller.say(sound.audio)
    begin, last = start + sound.begin, start + len(sound.audio) + int(STOP_WAIT_SECONDS * CLIENT_RATE)

    def decided() -> bool:
        return caller.now >= last or (sound.is_real and reply.status == "cancelled")

    await caller.until(decided, OUTCOME_WAIT_SECONDS)
    heard = " ".join(turn.text for turn in caller.turns[turns:])
    ended = reply.status == "cancelled"
    if sound.is_real:
        stop = max(0.0, ((caller.player.last_audible(reply.item) or begin) - begin) * 1000 / CLIENT_RATE)
        if not ended:
            return BargeinResult(sound.kind, sound.name, MISSED, heard=heard)
        return BargeinResult(sound.kind, sound.name, STOPPED, stop_ms=stop, heard=heard)
    gaps = [((hold.until or caller.now) - hold.at) * 1000 / CLIENT_RATE for hold in caller.holds[holds:]]
    stuck = any(hold.until is None for hold in caller.holds[holds:])
    outcome = CALL_ENDED if ended or stuck or len(caller.turns) > turns else RESUMED
    return BargeinResult(sound.kind, sound.name, outcome, gap_ms=max(gaps, default=0.0), heard=heard)


async def _speaking(caller: LiveCaller, since: int, samples: int) -> HeardReply:
    """Wait until the agent has spoken for a number of seconds since sample ``since``."""

    def speaking() -> bool:
        if not caller.replies or not caller.player.playing(caller.now):
            return False
        reply = caller.replies[-1]
        played = caller.player.played(reply.item, caller.now) - caller.player.played(reply.item, since)
        return not reply.status and played >= samples

    if not await caller.until(speaking, OUTCOME_WAIT_SECONDS):
        raise CallLost("the agent says nothing")
    return caller.replies[-1]


@dataclass(frozen=True, slots=True)
class BargeinSummary:
    """The figures.

    resumed: share of false interruptions after which the agent went on. in_time: share after which it went on
    within ``GAP_MS``. paused: number of false interruptions that paused it. gap: lengths of these pauses.
    """

    interruptions: int
    missed: int
    stop_p50_ms: float | None
    stop_p95_ms: float | None
    false: int
    resumed: float | None
    in_time: float | None
    paused: int
    gap_p50_ms: float | None
    gap_p95_ms: float | None


def summarise(results: Sequence[BargeinResult]) -> BargeinSummary:
    """Return the figures of the results."""
    real = [each for each in results if each.kind in (REAL, SHORT)]
    false = [each for each in results if each.kind not in (REAL, SHORT)]
    stops = [each.stop_ms for each in real if each.stop_ms is not None]
    gone_on = [each.gap_ms for each in false if each.outcome == RESUMED and each.gap_ms is not None]
    gaps = [gap for gap in gone_on if gap]
    return BargeinSummary(
        len(real),
        sum(each.stop_ms is None for each in real),
        *_percentiles(stops),
        len(false),
        len(gone_on) / len(false) if false else None,
        sum(gap < GAP_MS for gap in gone_on) / len(false) if false else None,
        len(gaps),
        *_percentiles(gaps),
    )


def table(results: Sequence[BargeinResult]) -> Table:
    """Return the table for the terminal."""
    shown = Table(title="Said over the agent; times in ms", title_justify="left")
    for column in ("", "all", "stop", "p50", "p95", "go on", "<600", "pause", "p50", "p95"):
        shown.add_column(column, justify="right" if column else "left")
    kinds = dict.fromkeys(each.kind for each in results)
    for kind in kinds:
        _add(shown, kind, [each for each in results if each.kind == kind])
    if len(kinds) > 2:
        shown.add_section()
        _add(shown, "all false", [each for each in results if each.kind not in (REAL, SHORT)])
    return shown


def report(results: Sequence[BargeinResult]) -> dict[str, Any]:
    """Return the figures as JSON data, with one row per sound."""
    return {"summary": asdict(summarise(results)), "sounds": [asdict(each) for each in results]}


def draw(results: Sequence[BargeinResult], path: Path) -> None:
    """Write a PNG of the distribution of stop times and pauses."""
    stops = [each.stop_ms for each in results if each.stop_ms is not None]
    gaps = [each.gap_ms for each in results if each.outcome == RESUMED and each.gap_ms]
    with percentages(path, "ms", "% of the sounds that paused the agent", 1000, height=4) as axes:
        for name, values in (("interruptions: silent after", stops), ("false ones: going on after", gaps)):
            places = [100 * (place + 1) / len(values) for place in range(len(values))]
            axes.step(sorted(values), places, where="post", label=name)


def _percentiles(values: Sequence[float]) -> tuple[float | None, float | None]:
    return tuple(np.percentile(values, (50, 95)).tolist()) if values else (None, None)


def _add(shown: Table, name: str, results: Sequence[BargeinResult]) -> None:
    figures = summarise(results)
    real = figures.interruptions
    cells = (
        str(len(results)),
        f"{1 - figures.missed / real:.0%}" if real else "",
        _ms(figures.stop_p50_ms),
        _ms(figures.stop_p95_ms),
        "" if figures.resumed is None else f"{figures.resumed:.0%}",
        "" if figures.in_time is None else f"{figures.in_time:.0%}",
        str(figures.paused) if figures.false else "",
        _ms(figures.gap_p50_ms),
        _ms(figures.gap_p95_ms),
    )
    shown.add_row(name, *cells)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"
