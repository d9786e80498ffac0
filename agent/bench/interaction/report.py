"""Reports of ``rejoinder bench interaction``: tables, JSON data, and the worst events as sound and trace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from rejoinder.agent.bench.interaction.calling import HeldCall
from rejoinder.agent.bench.interaction.definitions import (
    CUT_IN,
    FINE_TICK_SECONDS,
    LONG_TICK_SECONDS,
    RESPONSE,
    YIELD,
    InteractionFigures,
    ScoredEvent,
    figures,
    score,
)
from rejoinder.agent.client.audio import CLIENT_RATE

WORST_COUNT = 10
"""Number of events that are kept as sound and trace."""
BEFORE_EVENT_SECONDS = 3.0
"""Sound that is kept before an event."""
AFTER_EVENT_SECONDS = 5.0
"""Sound that is kept after an event."""
BADNESS = {RESPONSE: 9.0, YIELD: 8.0, CUT_IN: 5.0}
"""How bad an error is, in seconds of delay that would be as bad; ``OTHER_BADNESS`` for the others."""
OTHER_BADNESS = 4.0
"""How bad it is that a backchannel, a tic or an aside stops the agent, or is answered."""
NAMES = {
    "response_latency": "response latency, s",
    "response_rate": "response rate",
    "yield_latency": "yield latency, s",
    "yield_rate": "yield rate",
    "agent_interruptions": "agent interruptions per turn",
    "backchannels": "backchannels",
    "tics": "vocal tics",
    "asides": "not directed",
}
"""The eight figures and their names."""
COUNTS = {
    "response_latency": "turns",
    "response_rate": "turns",
    "yield_latency": "interruptions",
    "yield_rate": "interruptions",
    "agent_interruptions": "cut_ins",
    "backchannels": "backchannel_count",
    "tics": "tic_count",
    "asides": "aside_count",
}
"""The field with the number of events behind each figure."""


@dataclass(frozen=True, slots=True)
class EventOfCall:
    """An event of a call, for the report."""

    call: HeldCall
    event: ScoredEvent

    @property
    def badness(self) -> float:
        """How bad it was: an error counts as a delay of several seconds."""
        delay = max(0.0, self.event.latency or 0.0)
        return delay if self.event.correct else delay + BADNESS.get(self.event.category, OTHER_BADNESS)

    @property
    def what(self) -> str:
        """The kind of the caller's sound, and where it was."""
        kind = self.call.sounds[self.event.said].kind
        if self.event.category in (RESPONSE, YIELD, CUT_IN):
            return self.event.category
        return f"{kind}, {'over the agent' if self.event.over_agent else 'in silence'}"

    def as_data(self) -> dict[str, Any]:
        """Return the event as JSON data."""
        return {
            "wire": self.call.wire,
            "call": self.call.number,
            "speaker": self.call.speaker,
            **asdict(self.event),
            "what": self.what,
            "sound": self.call.sounds[self.event.said].name,
        }


def events_of(calls: Sequence[HeldCall], tick: float) -> list[EventOfCall]:
    """Return the events of several calls."""
    return [
        EventOfCall(call, event)
        for call in calls
        for event in score(call.said, call.agent, call.seconds, tick)
    ]


def wire_figures(calls: Sequence[HeldCall], wire: str, tick: float) -> InteractionFigures:
    """Return the figures of the calls over one wire."""
    return figures([each.event for each in events_of(calls, tick) if each.call.wire == wire])


def figures_table(calls: Sequence[HeldCall]) -> Table:
    """Return the eight figures of each wire, by ticks of both lengths."""
    wires = list(dict.fromkeys(call.wire for call in calls))
    shown = Table(title="tau-voice's figures (count of events)", title_justify="left")
    shown.add_column("")
    for wire in wires:
        for tick in (LONG_TICK_SECONDS, FINE_TICK_SECONDS):
            shown.add_column(f"{wire}, {1000 * tick:.0f} ms", justify="right")
    found = [
        wire_figures(calls, wire, tick) for wire in wires for tick in (LONG_TICK_SECONDS, FINE_TICK_SECONDS)
    ]
    for field, name in NAMES.items():
        shown.add_row(name, *(_cell(each, field) for each in found))
    return shown


def kinds_table(calls: Sequence[HeldCall], tick: float = LONG_TICK_SECONDS) -> Table:
    """Return how many events of each kind were handled rightly."""
    wires = list(dict.fromkeys(call.wire for call in calls))
    shown = Table(title="handled rightly, by kind", title_justify="left")
    shown.add_column("")
    for wire in wires:
        shown.add_column(wire, justify="right")
    events = [each for each in events_of(calls, tick) if each.event.category not in (RESPONSE, YIELD, CUT_IN)]
    for what in sorted({each.what for each in events}):
        cells = []
        for wire in wires:
            mine = [each.event.correct for each in events if each.what == what and each.call.wire == wire]
            cells.append(f"{sum(mine)} of {len(mine)}" if mine else "")
        shown.add_row(what, *cells)
    return shown


def interaction_report(calls: Sequence[HeldCall]) -> dict[str, Any]:
    """Return the figures and the events as JSON data."""
    wires = dict.fromkeys(call.wire for call in calls)
    return {
        "figures": {
            wire: {
                f"{1000 * tick:.0f} ms": asdict(wire_figures(calls, wire, tick))
                for tick in (LONG_TICK_SECONDS, FINE_TICK_SECONDS)
            }
            for wire in wires
        },
        "skipped": sum(call.skipped for call in calls),
        "events": [each.as_data() for each in events_of(calls, LONG_TICK_SECONDS)],
    }


def keep_worst(calls: Sequence[HeldCall], folder: Path) -> list[EventOfCall]:
    """Write the worst events to a folder, as ``01.wav`` (left: the caller) and ``01.json``. Return them."""
    import soundfile

    folder.mkdir(parents=True, exist_ok=True)
    ranked = sorted(events_of(calls, LONG_TICK_SECONDS), key=lambda each: each.badness, reverse=True)
    for place, each in enumerate(ranked[:WORST_COUNT], 1):
        call = each.call
        begin = max(0.0, call.said[each.event.said].begin - BEFORE_EVENT_SECONDS)
        end = max(each.event.at, call.said[each.event.said].end) + AFTER_EVENT_SECONDS
        part = slice(int(begin * CLIENT_RATE), int(end * CLIENT_RATE))
        both = np.stack((call.spoken[part], call.played[part]), axis=1)
        soundfile.write(folder / f"{place:02}.wav", both, CLIENT_RATE)
        trace = {
            **each.as_data(),
            "wav_begins": round(begin, 3),
            "said": [
                {
                    "begin": round(span.begin, 3),
                    "end": round(span.end, 3),
                    "kind": sound.kind,
                    "name": sound.name,
                }
                for span, sound in zip(call.said, call.sounds, strict=True)
                if span.end > begin and span.begin < end
            ],
            "agent": [
                [round(first, 3), round(last, 3)]
                for first, last in call.agent
                if last > begin and first < end
            ],
            "server": _within(call.events, begin, end),
        }
        (folder / f"{place:02}.json").write_text(json.dumps(trace, indent=2, ensure_ascii=False) + "\n")
    return ranked[:WORST_COUNT]


def _within(events: dict[str, Any], begin: float, end: float) -> dict[str, Any]:
    """Return the server's events that touch a time of the call."""

    def touches(each: Any) -> bool:
        times = (
            [value for value in each.values() if isinstance(value, float)] if isinstance(each, dict) else []
        )
        return bool(times) and min(times) <= end and max(times) >= begin

    return {name: [each for each in found if touches(each)] for name, found in events.items()}


def _cell(found: InteractionFigures, field: str) -> str:
    value, count = getattr(found, field), getattr(found, COUNTS[field])
    return "" if value is None else f"{value:.2f} ({count})"
