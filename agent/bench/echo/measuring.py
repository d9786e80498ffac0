"""Measures whether the echo of an open loudspeaker interrupts the agent, and whether callers still can.

A real server runs in real time. In each call the agent tells a long story, and the caller's microphone
records it through a room, at a given level and delay. From time to time, the caller interrupts.
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

from rejoinder.agent.bench.callers.caller import LiveCaller, open_call
from rejoinder.agent.bench.callers.room import Room
from rejoinder.agent.bench.cases.overlap import OverlapSound
from rejoinder.agent.bench.cases.recordings import Recording, read_set
from rejoinder.agent.bench.reports.output import percentages
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.client.socket import CallLost
from rejoinder.pipeline.audio.chunk import Samples

LEVELS = (0.0, -6.0, -12.0, -20.0)
"""Levels of the echo, in decibels."""
ROOMS = "rir"
"""Set of the rooms' impulse responses."""
MUSIC = "music"
"""Set of the music in the background."""
DELAYS = (0.1, 0.45)
"""Delays from the client's playback to its microphone, in seconds: the buffers in both directions."""
LINES = 4
"""Calls at the same time."""
HISS = 10 ** (-65 / 20)
"""RMS of the microphone's own noise."""
LATE_TURN_SECONDS = 1.5
"""A turn that begins later than this after a sound belongs to that sound only if its turn was still open."""
REPLY_WAIT_SECONDS = 3.0
"""Longest wait for an answer before the bench requests one."""
REQUESTED_WAIT_SECONDS = 20.0
"""Longest wait for a requested answer before the bench ends the call."""


@dataclass(frozen=True, slots=True)
class Place:
    """The caller's surroundings: a ``room`` with an echo at ``level`` decibels, or a background ``noise``."""

    name: str
    level: float | None = None
    room: Room | None = None
    noise: Samples | None = None


@dataclass(slots=True)
class EchoResult:
    """The result of one call.

    seconds: of the agent's audible speech. own: transcripts of turns that the agent's own voice caused.
        pauses: (start in seconds of the call, length in ms) of each pause without an interruption.
    stops_ms: time to silence for each interruption, None if the agent did not stop. missed: names of those.
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
        """Return one line for the terminal."""
        caught = sum(each is not None for each in self.stops_ms)
        own = f", itself {len(self.own)} times: {' | '.join(self.own)}" if self.own else ""
        where = self.name if self.level is None else f"{self.level:.0f} dB {self.name}"
        pauses = f", {len(self.pauses)} pauses" if self.pauses else ""
        missed = f", missed {' | '.join(self.missed)}" if self.missed else ""
        real = f"{caught} of {len(self.stops_ms)} caught"
        return f"{where}: {self.seconds:.0f} s, {real}{missed}{pauses}{own}{self.lost}"


def places(folder: Path, seed: int) -> list[Place]:
    """Return each room at each level, and places with music and no echo. Raises RecordingsMissing."""
    draw = Random(seed)
    found = []
    for recording in read_set(folder, ROOMS):
        response = recording.load(CLIENT_RATE)
        for level in LEVELS:
            found.append(Place(_name(recording), level, Room(response, level, draw.uniform(*DELAYS))))
    music = read_set(folder, MUSIC)[:1]
    return found + [
        Place(f"music: {_name(each)}", noise=_level(each.load(CLIENT_RATE), -32.0)) for each in music
    ]


async def measure(
    url: str,
    where: Sequence[Place],
    sounds: Sequence[OverlapSound],
    seconds: float,
    tell: Callable[[EchoResult], None],
) -> list[EchoResult]:
    """Hold a call at each place, ``LINES`` at a time, until the agent has spoken for ``seconds`` in each.

    Cancelling ends the calls.
    """
    lines = asyncio.Semaphore(LINES)
    share = len(sounds) // len(where)

    async def call(number: int, place: Place) -> EchoResult:
        async with lines:
            result = EchoResult(place.name, place.level)
            try:
                mine = sounds[number * share : (number + 1) * share]
                await _call(url, place, mine, seconds, number, result)
            except CallLost as error:
                result.lost = f", lost: {error}"
            tell(result)
            return result

    return list(await asyncio.gather(*(call(*each) for each in enumerate(where))))


async def _call(
    url: str, place: Place, sounds: Sequence[OverlapSound], seconds: float, seed: int, result: EchoResult
) -> None:
    hiss = np.random.default_rng(seed).normal(0.0, HISS, 10 * CLIENT_RATE).astype(np.float32)
    noise = hiss if place.noise is None else place.noise
    async with open_call(url, background=noise, room=place.room) as caller:
        windows = []
        for count, sound in enumerate([*sounds, None], 1):
            # A few calls at a time: this bench does not measure capacity.
            apart = 0.2 * (seed % LINES) if sound is not None else 0.0
            await _listen(caller, seconds * (count - apart) / (len(sounds) + 1))
            if sound is not None:
                windows.append(await _interrupt(caller, sound, result))
        strangers = [turn for turn in caller.turns if not _within(turn.begin, windows)]
        holds = [hold for hold in caller.holds if not _within(hold.at, windows)]
        result.own = [turn.text for turn in strangers]
        result.pauses = [
            (
                round(hold.at / CLIENT_RATE, 1),
                round(((hold.until or caller.now) - hold.at) * 1000 / CLIENT_RATE),
            )
            for hold in holds
        ]
        result.seconds = _heard(caller)


async def _listen(caller: LiveCaller, seconds: float) -> None:
    """Wait until the agent has spoken for some seconds of the call and speaks; request a reply if not."""

    def enough() -> bool:
        return _heard(caller) >= seconds and _speaks(caller)

    heard = -1.0
    while not await caller.until(lambda: enough() or _silent(caller), REQUESTED_WAIT_SECONDS):
        before, heard = heard, _heard(caller)
        if heard == before:
            raise CallLost("the agent did not speak in time")
    if not enough():
        # After an interruption the agent answers without a request, slightly later.
        if not caller.replies or not await caller.until(lambda: not _silent(caller), REPLY_WAIT_SECONDS):
            await caller.ask()
            if not await caller.until(lambda: not _silent(caller), REQUESTED_WAIT_SECONDS):
                raise CallLost("the agent did not speak in time")
        await _listen(caller, seconds)


async def _interrupt(caller: LiveCaller, sound: OverlapSound, result: EchoResult) -> tuple[int, int]:
    reply = caller.replies[-1]
    start = caller.say(sound.audio)
    begin, end = start + sound.begin, start + len(sound.audio) + int(LATE_TURN_SECONDS * CLIENT_RATE)

    def decided() -> bool:
        undecided = caller.holds and caller.holds[-1].until is None and reply.status != "cancelled"
        return caller.now >= end and not undecided

    await caller.until(decided, REQUESTED_WAIT_SECONDS)
    stop = None
    if reply.status == "cancelled":
        stop = max(0.0, ((caller.player.last_audible(reply.item) or begin) - begin) * 1000 / CLIENT_RATE)
    else:
        result.missed.append(f"{sound.kind} {sound.name}")
    result.stops_ms.append(stop)
    return start, max(end, caller.now)


def _silent(caller: LiveCaller) -> bool:
    """Return whether no reply is in progress or audible."""
    return not caller.replies or (bool(caller.replies[-1].status) and not caller.player.playing(caller.now))


def _speaks(caller: LiveCaller) -> bool:
    return bool(caller.replies) and not caller.replies[-1].status and caller.player.playing(caller.now)


def _heard(caller: LiveCaller) -> float:
    now = caller.now
    return sum(caller.player.played(reply.item, now) for reply in caller.replies) / CLIENT_RATE


def _within(sample: int, windows: Sequence[tuple[int, int]]) -> bool:
    return any(begin <= sample <= end for begin, end in windows)


@dataclass(frozen=True, slots=True)
class EchoSummary:
    """The figures.

    self_interruptions_per_10min: turns that the agent's own voice caused. pauses: pauses without an
    interruption. caught: share of the interruptions that stopped the agent.
    """

    minutes: float
    self_interruptions: int
    self_interruptions_per_10min: float | None
    pauses: int
    interruptions: int
    caught: float | None
    stop_p50_ms: float | None
    stop_p95_ms: float | None


def summarise(results: Sequence[EchoResult]) -> EchoSummary:
    """Return the figures of the calls."""
    minutes = sum(each.seconds for each in results) / 60
    own = sum(len(each.own) for each in results)
    real = [stop for each in results for stop in each.stops_ms]
    stops = [stop for stop in real if stop is not None]
    return EchoSummary(
        round(minutes, 2),
        own,
        round(10 * own / minutes, 2) if minutes else None,
        sum(len(each.pauses) for each in results),
        len(real),
        round(len(stops) / len(real), 3) if real else None,
        *(np.percentile(stops, (50, 95)).tolist() if stops else (None, None)),
    )


def echoes(results: Sequence[EchoResult]) -> list[EchoResult]:
    """Return the results of the calls with an echo."""
    return [each for each in results if each.level is not None]


def table(results: Sequence[EchoResult]) -> Table:
    """Return the table for the terminal, with one row per level."""
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


def report(results: Sequence[EchoResult]) -> dict[str, Any]:
    """Return the figures as JSON data, with one row per call."""
    return {"summary": asdict(summarise(echoes(results))), "calls": [asdict(each) for each in results]}


def draw(named: Sequence[tuple[str, Sequence[EchoResult]]], path: Path) -> None:
    """Write a PNG of the stop times at each level, labelled with the number of self-interruptions."""
    with percentages(path, "ms until it is silent", "% of the interruptions", 1000, height=4) as axes:
        for name, results in named:
            for level in sorted({each.level for each in echoes(results) if each.level is not None}):
                mine = [each for each in results if each.level == level]
                stops = sorted(stop for each in mine for stop in each.stops_ms if stop is not None)
                count = sum(len(each.stops_ms) for each in mine)
                shares = [100 * (place + 1) / count for place in range(len(stops))]
                own = summarise(mine).self_interruptions
                axes.step(stops, shares, where="post", label=f"{name} {level:.0f} dB, itself {own} times")


def _add(shown: Table, name: str, results: Sequence[EchoResult]) -> None:
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
