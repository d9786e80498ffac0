"""The eight figures of tau-voice, as plain functions over who speaks when.

After ``docs/interaction-metrics.md`` and ``src/tau2/metrics/voice_interaction_metrics.py`` (version 1.1) of
sierra-research/tau2-bench. Time is divided into ticks. A party speaks in a tick if any of its audio falls
into it, and ticks without a gap are a segment. A turn is a segment with its inner pauses. Tics, and speech to
other people, are no segments of the user.

There is one departure: a tic or an aside over the agent counts whatever comes of it. The scorer counts one
that is no part of a user segment only where it stops the agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from rejoinder.agent.bench.cases.overlap import BACKCHANNEL

LONG_TICK_SECONDS = 0.2
"""Length of a tick of tau-voice."""
FINE_TICK_SECONDS = 0.02
"""Length of a tick in which a fast agent's answer is not taken for an interruption or for no answer."""
YIELD_WITHIN_SECONDS = 2.0
"""Time in which the agent must stop for an interruption."""
GO_ON_SECONDS = 1.0
"""Time in which the agent must not stop for a backchannel, a tic or an aside."""
STAY_SILENT_SECONDS = 2.0
"""Time after a tic or an aside in which the agent must not answer it."""

TURN = "turn"
"""Category of a sound: speech to the agent. Over the agent, it is an interruption."""
TIC = "tic"
"""Category of a sound: "um", a cough, a breath or laughter."""
ASIDE = "aside"
"""Category of a sound: speech that is not directed at the agent."""
RESPONSE = "response"
"""Category of an event: whether the agent answers a turn."""
YIELD = "yield"
"""Category of an event: whether the agent stops for an interruption."""
CUT_IN = "agent interruption"
"""Category of an event: the agent starts to speak while the user speaks."""

Span = tuple[float, float]
"""Begin and end in seconds from the start of the call."""


@dataclass(frozen=True, slots=True)
class SaidSpan:
    """A sound of the caller, from ``begin`` to ``end`` in seconds.

    category: TURN, BACKCHANNEL, TIC or ASIDE.
    """

    category: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class ScoredEvent:
    """An event of a call.

    category: RESPONSE, YIELD, CUT_IN, BACKCHANNEL, TIC or ASIDE.
    at: seconds from the start of the call.
    correct: whether the agent did what it should.
    said: place of the sound in the list of the caller's sounds.
    latency: seconds until the agent answered or stopped, None if it did not, or if that does not count.
    over_agent: whether the agent spoke when the sound began.
    """

    category: str
    at: float
    correct: bool
    said: int
    latency: float | None = None
    over_agent: bool = False


@dataclass(frozen=True, slots=True)
class InteractionFigures:
    """The eight figures, None where there was no event, and the number of events behind them."""

    response_latency: float | None
    response_rate: float | None
    yield_latency: float | None
    yield_rate: float | None
    agent_interruptions: float | None
    backchannels: float | None
    tics: float | None
    asides: float | None
    turns: int
    interruptions: int
    cut_ins: int
    backchannel_count: int
    tic_count: int
    aside_count: int


def score(said: Sequence[SaidSpan], agent: Iterable[Span], seconds: float, tick: float) -> list[ScoredEvent]:
    """Return the events of one call, in order.

    said: the caller's sounds, in order and apart. agent: when the agent's audio played. seconds: length of
    the call. tick: in seconds.
    """
    count = ceil(seconds / tick)
    speaks = ticks(agent, count, tick)
    segments = _runs(speaks)
    sounds = [(place, span, *_in_ticks((span.begin, span.end), tick)) for place, span in enumerate(said)]
    user = [each for each in sounds if each[1].category in (TURN, BACKCHANNEL) and each[2] < count]
    events: list[ScoredEvent] = []
    answerable = [
        each for each in user if each[1].category == TURN and not (each[3] < count and speaks[each[3]])
    ]
    for order, (place, _, _, end) in enumerate(answerable):
        answer = next((first for first, _ in segments if first >= end), None)
        again = answerable[order + 1][2] if order + 1 < len(answerable) else None
        if answer is not None and (again is None or answer <= again):
            events.append(ScoredEvent(RESPONSE, end * tick, True, place, (answer - end) * tick))
        elif again is not None:
            events.append(ScoredEvent(RESPONSE, end * tick, False, place))
    for first, _ in segments:
        for place, _, begin, end in user:
            if begin <= first < end:
                events.append(ScoredEvent(CUT_IN, first * tick, False, place))
    for place, span, begin, end in sounds:
        if begin < count:
            events += _of_sound(place, span, (begin, end), speaks, segments, tick)
    return sorted(events, key=lambda event: event.at)


def _of_sound(
    place: int,
    span: SaidSpan,
    place_in_ticks: tuple[int, int],
    speaks: Sequence[bool],
    segments: Sequence[tuple[int, int]],
    tick: float,
) -> list[ScoredEvent]:
    begin, end = place_in_ticks
    if speaks[begin]:
        within = YIELD_WITHIN_SECONDS if span.category == TURN else GO_ON_SECONDS
        stop = next((at for at in range(begin, _end(begin, within, tick, speaks)) if not speaks[at]), None)
        after = None if stop is None else (stop - begin) * tick
        if span.category == TURN:
            return [ScoredEvent(YIELD, begin * tick, stop is not None, place, after, True)]
        return [ScoredEvent(span.category, begin * tick, stop is None, place, after, True)]
    if span.category in (TIC, ASIDE):
        last = end + round(STAY_SILENT_SECONDS / tick)
        answer = next((first for first, _ in segments if begin <= first <= last), None)
        after = None if answer is None else (answer - end) * tick
        return [ScoredEvent(span.category, begin * tick, answer is None, place, after)]
    return []


def figures(events: Sequence[ScoredEvent]) -> InteractionFigures:
    """Return the eight figures of the events of one or several calls."""
    by = {
        category: [event for event in events if event.category == category]
        for category in (RESPONSE, YIELD, CUT_IN, BACKCHANNEL, TIC, ASIDE)
    }
    turns, cut_ins = len(by[RESPONSE]), len(by[CUT_IN])
    return InteractionFigures(
        _latency(by[RESPONSE]),
        _correct(by[RESPONSE]),
        _latency(by[YIELD]),
        _correct(by[YIELD]),
        cut_ins / turns if turns else None,
        _correct(by[BACKCHANNEL]),
        _correct(by[TIC]),
        _correct(by[ASIDE]),
        turns,
        len(by[YIELD]),
        cut_ins,
        *(len(by[category]) for category in (BACKCHANNEL, TIC, ASIDE)),
    )


def ticks(spans: Iterable[Span], count: int, tick: float) -> list[bool]:
    """Return for each of ``count`` ticks whether a part of a span falls into it."""
    speaks = [False] * count
    for span in spans:
        first, last = _in_ticks(span, tick)
        speaks[first:last] = [True] * max(0, min(last, count) - first)
    return speaks


def _in_ticks(span: Span, tick: float) -> tuple[int, int]:
    """Return the first tick of a span, and the one after its last. Rounding errors open no tick."""
    first = int(span[0] / tick + 1e-6)
    return first, max(first + 1, ceil(span[1] / tick - 1e-6))


def _end(begin: int, seconds: float, tick: float, speaks: Sequence[bool]) -> int:
    return min(begin + round(seconds / tick), len(speaks))


def _runs(speaks: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the first tick of each segment, and the one after its last."""
    edges = [
        at
        for at in range(len(speaks) + 1)
        if (at < len(speaks) and speaks[at]) != (at > 0 and speaks[at - 1])
    ]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _latency(events: Sequence[ScoredEvent]) -> float | None:
    latencies = [event.latency for event in events if event.correct and event.latency is not None]
    return sum(latencies) / len(latencies) if latencies else None


def _correct(events: Sequence[ScoredEvent]) -> float | None:
    return sum(event.correct for event in events) / len(events) if events else None
