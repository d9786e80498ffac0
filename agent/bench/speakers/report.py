"""The table of a bench of background speakers, and its key figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

import numpy as np
from rich.table import Table

from rejoinder.agent.bench.speakers.listening import VoiceOutcome
from rejoinder.agent.bench.speakers.scenes import VoicePlace

Z95 = 1.96
"""Standard errors of a normal interval of 95 %."""
AT_15_DB = "15 dB below"
"""Part of the kinds that the key figure of the background counts."""


@dataclass(frozen=True, slots=True)
class VoiceRow:
    """One kind of voice at one place, with each setting.

    every, caller: number of voices that took the floor, where all voices count, and where the caller's does.
    later_ms: the 95th percentile of how much later the caller's voice is noticed.
    ended_ms: the median of when the turn before ended, with each setting.
    """

    kind: str
    place: VoicePlace
    is_caller: bool
    count: int
    every: int
    caller: int
    later_ms: float | None
    ended_ms: tuple[float | None, float | None]


def rows(outcomes: Sequence[tuple[VoiceOutcome, VoiceOutcome]]) -> list[VoiceRow]:
    """Return one row for each kind and place; the settings of each pair are many and one."""
    groups: dict[tuple[bool, VoicePlace, str], list[tuple[VoiceOutcome, VoiceOutcome]]] = {}
    for pair in outcomes:
        groups.setdefault((pair[0].is_caller, pair[0].place, pair[0].scene), []).append(pair)
    return [_row(kind, place, own, group) for (own, place, kind), group in sorted(groups.items())]


def _row(
    kind: str, place: VoicePlace, is_caller: bool, pairs: Sequence[tuple[VoiceOutcome, VoiceOutcome]]
) -> VoiceRow:
    later = [
        one.noticed_ms - many.noticed_ms
        for many, one in pairs
        if many.noticed_ms is not None and one.noticed_ms is not None
    ]
    every, caller = (sum(pair[place].took for pair in pairs) for place in (0, 1))
    ended = tuple(_median(pair[place].ended_ms for pair in pairs) for place in (0, 1))
    late = float(np.percentile(later, 95)) if later and is_caller else None
    return VoiceRow(kind, place, is_caller, len(pairs), every, caller, late, (ended[0], ended[1]))


def table(found: Sequence[VoiceRow]) -> Table:
    """Return the table for the terminal."""
    shown = Table(title="Voices that take the floor, %; times in ms", title_justify="left")
    for column in ("", "n", "many", "one", "95 %", "later", "ends"):
        shown.add_column(column, justify="right" if column else "left", no_wrap=column != "")
    last: tuple[bool, VoicePlace] | None = None
    for row in found:
        if (row.is_caller, row.place) != last:
            shown.add_section()
            shown.add_row(f"{'the caller' if row.is_caller else 'the background'}, {row.place}")
            last = row.is_caller, row.place
        low, high = interval(row.caller, row.count)
        shown.add_row(
            f"  {row.kind}",
            str(row.count),
            f"{100 * row.every / row.count:.0f}",
            f"{100 * row.caller / row.count:.0f}",
            f"{100 * low:.0f}-{100 * high:.0f}",
            "" if row.later_ms is None else f"{row.later_ms:.0f}",
            "" if None in row.ended_ms else " > ".join(f"{ms:.0f}" for ms in row.ended_ms if ms),
        )
    return shown


def summary(found: Sequence[VoiceRow]) -> dict[str, Any]:
    """Return the key figures, as shares from 0 to 1 of the voices that take the floor where all count.

    kept_out: of voices, pairs and meetings 15 dB below the caller. lost: of the caller's later utterances at
    the level of the first, and of those 6 dB quieter.
    """
    aside = [row for row in found if not row.is_caller and row.place is not VoicePlace.AFTER_CALLER]
    kept = _kept(row for row in aside if AT_15_DB in row.kind)
    own = [row for row in found if row.is_caller]
    return {
        "kept_out_15_db": kept,
        "lost_same_level": _kept(row for row in own if row.kind == "caller, 0 dB quieter"),
        "lost_6_db_quieter": _kept(row for row in own if row.kind == "caller, 6 dB quieter"),
        "lost_10_db_quieter": _kept(row for row in own if row.kind == "caller, 10 dB quieter"),
    }


def report(found: Sequence[VoiceRow]) -> dict[str, Any]:
    """Return the figures as JSON data."""
    return {"summary": summary(found), "voices": [asdict(row) for row in found]}


def _kept(found: Iterable[VoiceRow]) -> float | None:
    """Return the share of voices that take the floor only where all voices count."""
    counted = list(found)
    every = sum(row.every for row in counted)
    return 1 - sum(row.caller for row in counted) / every if every else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def interval(hits: int, count: int) -> tuple[float, float]:
    """Return Wilson's interval for a share, from 0 to 1, that holds 95 %. (0, 1) for no cases."""
    if not count:
        return 0.0, 1.0
    share, square = hits / count, Z95**2 / count
    middle = (share + square / 2) / (1 + square)
    half = Z95 * sqrt(share * (1 - share) / count + square / 4 / count) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)
