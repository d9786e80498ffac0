"""Whether an agent that hears itself through an open loudspeaker interrupts itself, and can be interrupted.

A real server in real time. In each call the agent tells a long story, and the caller's microphone hears it
through a room, at a level and with a delay; now and then somebody speaks over it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from rich.table import Table

from rejoinder.agent.bench.callers.caller import Caller, open_call
from rejoinder.agent.bench.callers.room import Room
from rejoinder.agent.bench.cases.overlap import Sound
from rejoinder.agent.bench.cases.recordings import Recording, read_set
from rejoinder.agent.bench.reports.output import percentages
from rejoinder.agent.bench.reports.waterfall import percentile
from rejoinder.agent.client.client import CallLost
from rejoinder.agent.client.player import RATE
from rejoinder.pipeline.audio.chunk import Samples

LEVELS = (0.0, -6.0, -12.0, -20.0)
ROOMS, MUSIC = "rir", "music"
DELAYS = (0.1, 0.45)
"""Seconds from what the client plays to what its microphone hears: its buffers, both ways."""
LINES = 4
"""Calls at a time."""
HISS = 10 ** (-65 / 20)
"""RMS of a microphone's own noise."""
AFTER_SECONDS = 1.5
"""A turn that begins so long after a sound is none of it, unless the agent was still listening to that."""
ANSWER_SECONDS, PATIENCE_SECONDS = 3.0, 20.0
"""So long an answer is waited for before the agent is asked, and then until the call is given up."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call is made: through a ``room`` with an echo at ``level`` decibels, or with a ``noise``."""

    name: str
    level: float | None = None
    room: Room | None = None
    noise: Samples | None = None


@dataclass(slots=True)
class Result:
    """What came of one call.

    seconds: how long the agent was heard. own: the words of turns that nobody took. pauses: of each silence
        that nobody asked for, when it began in seconds of the call, and its milliseconds.
    stops_ms: how soon it fell silent for each interruption, None where it did not. missed: their names.
    """

    name: str
    level: float | None
    seconds: float = 0.0
    own: list[str] = field(default_factory=list)
    pauses: list[tuple[float, float]] = field(default_factory=list)
    stops_ms: list[float | None] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    lost: str = ""

    def __str__(self) -> str:
        """Return one line for people."""
        caught = sum(each is not None for each in self.stops_ms)
        own = f", itself {len(self.own)} times: {' | '.join(self.own)}" if self.own else ""
        where = self.name if self.level is None else f"{self.level:.0f} dB {self.name}"
        pauses = f", {len(self.pauses)} pauses" if self.pauses else ""
        missed = f", missed {' | '.join(self.missed)}" if self.missed else ""
        real = f"{caught} of {len(self.stops_ms)} caught"
        return f"{where}: {self.seconds:.0f} s, {real}{missed}{pauses}{own}{self.lost}"


def places(folder: Path, seed: int) -> list[Place]:
    """Return every room at every level, and music instead of an echo. Raises RecordingsMissing."""
    draw = Random(seed)
    found = []
    for recording in read_set(folder, ROOMS):
        response = recording.load(RATE)
        for level in LEVELS:
            found.append(Place(_name(recording), level, Room(response, level, draw.uniform(*DELAYS))))
    music = read_set(folder, MUSIC)[:1]
    return found + [Place(f"music: {_name(each)}", noise=_level(each.load(RATE), -32.0)) for each in music]


async def measure(
    url: str, where: Sequence[Place], sounds: Sequence[Sound], seconds: float, tell: Callable[[Result], None]
) -> list[Result]:
    """Make a call at each place, several at a time, until the agent was heard for so long in each."""
    lines = asyncio.Semaphore(LINES)
    share = len(sounds) // len(where)

    async def call(number: int, place: Place) -> Result:
        async with lines:
            result = Result(place.name, place.level)
            try:
                mine = sounds[number * share : (number + 1) * share]
                await _call(url, place, mine, seconds, number, result)
            except CallLost as error:
                result.lost = f", lost: {error}"
            tell(result)
            return result

    return list(await asyncio.gather(*(call(*each) for each in enumerate(where))))


async def _call(
    url: str, place: Place, sounds: Sequence[Sound], seconds: float, seed: int, result: Result
) -> None:
    hiss = np.random.default_rng(seed).normal(0.0, HISS, 10 * RATE).astype(np.float32)
    noise = hiss if place.noise is None else place.noise
    async with open_call(url, background=noise, room=place.room) as caller:
        windows = []
        for count, sound in enumerate([*sounds, None], 1):
            # Not all callers at once: how many can be served is not what is measured here.
            apart = 0.2 * (seed % LINES) if sound is not None else 0.0
            await _listen(caller, seconds * (count - apart) / (len(sounds) + 1))
            if sound is not None:
                windows.append(await _interrupt(caller, sound, result))
        strangers = [turn for turn in caller.turns if not _within(turn.begin, windows)]
        holds = [hold for hold in caller.holds if not _within(hold.at, windows)]
        result.own = [turn.text for turn in strangers]
        result.pauses = [
            (round(hold.at / RATE, 1), round(((hold.until or caller.now) - hold.at) * 1000 / RATE))
            for hold in holds
        ]
        result.seconds = _heard(caller)


async def _listen(caller: Caller, seconds: float) -> None:
    """Wait until the agent was heard for so many seconds of the call, and speaks; ask where it does not."""

    def enough() -> bool:
        return _heard(caller) >= seconds and _speaks(caller)

    heard = -1.0
    while not await caller.until(lambda: enough() or _silent(caller), PATIENCE_SECONDS):
        before, heard = heard, _heard(caller)
        if heard == before:
            raise CallLost("the agent says nothing")
    if not enough():
        # After an interruption it answers by itself, a moment later.
        if not caller.replies or not await caller.until(lambda: not _silent(caller), ANSWER_SECONDS):
            await caller.ask()
            if not await caller.until(lambda: not _silent(caller), PATIENCE_SECONDS):
                raise CallLost("the agent says nothing")
        await _listen(caller, seconds)


async def _interrupt(caller: Caller, sound: Sound, result: Result) -> tuple[int, int]:
    reply = caller.replies[-1]
    start = caller.say(sound.audio)
    begin, end = start + sound.begin, start + len(sound.audio) + int(AFTER_SECONDS * RATE)

    def decided() -> bool:
        undecided = caller.holds and caller.holds[-1].until is None and reply.status != "cancelled"
        return caller.now >= end and not undecided

    await caller.until(decided, PATIENCE_SECONDS)
    stop = None
    if reply.status == "cancelled":
        stop = max(0.0, ((caller.player.last_audible(reply.item) or begin) - begin) * 1000 / RATE)
    else:
        result.missed.append(f"{sound.kind} {sound.name}")
    result.stops_ms.append(stop)
    return start, max(end, caller.now)


def _silent(caller: Caller) -> bool:
    """Tell whether no reply is told or heard."""
    return not caller.replies or (bool(caller.replies[-1].status) and not caller.player.playing(caller.now))


def _speaks(caller: Caller) -> bool:
    return bool(caller.replies) and not caller.replies[-1].status and caller.player.playing(caller.now)


def _heard(caller: Caller) -> float:
    now = caller.now
    return sum(caller.player.played(reply.item, now) for reply in caller.replies) / RATE


def _within(sample: int, windows: Sequence[tuple[int, int]]) -> bool:
    return any(begin <= sample <= end for begin, end in windows)


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures. self_interruptions_per_10min: turns that nobody took, by the agent's own voice.

    pauses: moments in which it fell silent for nobody, and went on. caught: share of the interruptions.
    """

    minutes: float
    self_interruptions: int
    self_interruptions_per_10min: float | None
    pauses: int
    interruptions: int
    caught: float | None
    stop_p50_ms: float | None
    stop_p95_ms: float | None


def summarise(results: Sequence[Result]) -> Summary:
    """Return the figures of some calls."""
    minutes = sum(each.seconds for each in results) / 60
    own = sum(len(each.own) for each in results)
    real = [stop for each in results for stop in each.stops_ms]
    stops = [stop for stop in real if stop is not None]
    return Summary(
        round(minutes, 2),
        own,
        round(10 * own / minutes, 2) if minutes else None,
        sum(len(each.pauses) for each in results),
        len(real),
        round(len(stops) / len(real), 3) if real else None,
        percentile(stops, 0.5) if stops else None,
        percentile(stops, 0.95) if stops else None,
    )


def echoes(results: Sequence[Result]) -> list[Result]:
    """Return the calls in which there was an echo."""
    return [each for each in results if each.level is not None]


def table(results: Sequence[Result]) -> Table:
    """Return what the terminal shows: a row for each level."""
    shown = Table(title="An open loudspeaker; stops in ms", title_justify="left")
    for column in (
        "echo",
        "minutes",
        "itself",
        "per 10 min",
        "pauses",
        "spoken over",
        "caught",
        "p50",
        "p95",
    ):
        shown.add_column(column, justify="right" if column != "echo" else "left")
    for level in sorted({each.level for each in echoes(results) if each.level is not None}, reverse=True):
        _add(shown, f"{level:.0f} dB", [each for each in results if each.level == level])
    shown.add_section()
    _add(shown, "all", echoes(results))
    for each in results:
        if each.level is None:
            _add(shown, each.name, [each])
    return shown


def report(results: Sequence[Result]) -> dict[str, Any]:
    """Return the same for a machine, with a row for each call."""
    return {"summary": asdict(summarise(echoes(results))), "calls": [asdict(each) for each in results]}


def draw(named: Sequence[tuple[str, Sequence[Result]]], path: Path) -> None:
    """Draw how soon the agent stops, for each level, into a PNG, with how often it stopped itself."""
    with percentages(path, "ms until it is silent", "% of the interruptions", 1000, height=4) as axes:
        for name, results in named:
            for level in sorted({each.level for each in echoes(results) if each.level is not None}):
                mine = [each for each in results if each.level == level]
                stops = sorted(stop for each in mine for stop in each.stops_ms if stop is not None)
                count = sum(len(each.stops_ms) for each in mine)
                shares = [100 * (place + 1) / count for place in range(len(stops))]
                own = summarise(mine).self_interruptions
                axes.step(stops, shares, where="post", label=f"{name} {level:.0f} dB, itself {own} times")


def _add(shown: Table, name: str, results: Sequence[Result]) -> None:
    figures = summarise(results)
    shown.add_row(
        name,
        f"{figures.minutes:.1f}",
        str(figures.self_interruptions),
        "" if figures.self_interruptions_per_10min is None else f"{figures.self_interruptions_per_10min:.1f}",
        str(figures.pauses),
        str(figures.interruptions),
        "" if figures.caught is None else f"{figures.caught:.0%}",
        "" if figures.stop_p50_ms is None else f"{figures.stop_p50_ms:.0f}",
        "" if figures.stop_p95_ms is None else f"{figures.stop_p95_ms:.0f}",
    )


def _name(recording: Recording) -> str:
    return recording.path.stem[:24]


def _level(audio: Samples, decibels: float) -> Samples:
    level: Samples = (audio * (10 ** (decibels / 20) / np.sqrt(np.mean(audio**2)))).astype(np.float32)
    return level
