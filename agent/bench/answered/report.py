"""The confusion table of a bench of who answered, and its key figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from statistics import median
from typing import Any

from rich.table import Table

from rejoinder.agent.app.answering.phrases import AnsweredBy
from rejoinder.agent.bench.answered.calls import AnsweredCall

MACHINES = (AnsweredBy.VOICEMAIL, AnsweredBy.IVR, AnsweredBy.UNAVAILABLE)
"""The answers of machines."""
Z95 = 1.96
"""Quantile of the normal distribution for an interval that holds 95 %."""


def interval(hits: int, count: int) -> tuple[float, float]:
    """Return Wilson's interval for a share, from 0 to 1, that holds 95 %. (0, 1) for no cases."""
    if not count:
        return 0.0, 1.0
    share, square = hits / count, Z95**2 / count
    middle = (share + square / 2) / (1 + square)
    half = Z95 * sqrt(share * (1 - share) / count + square / 4 / count) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


def is_right(call: AnsweredCall, by: AnsweredBy) -> bool:
    """Return whether a person was kept, or a machine taken for one of whatever kind."""
    return (by in MACHINES) == (call.kind in MACHINES)


def rows(calls: Sequence[AnsweredCall]) -> dict[str, list[AnsweredCall]]:
    """Return the calls by who answered and how the greeting was made."""
    found: dict[str, list[AnsweredCall]] = {}
    for call in calls:
        label = f"{call.kind}, recorded" if call.recorded else str(call.kind)
        found.setdefault(
            "prompts, recorded" if call.recorded and call.kind in MACHINES else label, []
        ).append(call)
    return found


def confusion(calls: Sequence[AnsweredCall]) -> Table:
    """Return the table of who answered and who was taken to have answered, in the end."""
    table = Table(title="Who answered, and what was decided")
    table.add_column("who")
    for kind in AnsweredBy:
        table.add_column(str(kind), justify="right")
    for column in ("n", "at first %", "in the end %", "95 %", "p50 s", "p95 s"):
        table.add_column(column, justify="right")
    for label, row in rows(calls).items():
        counts = Counter(call.last for call in row)
        times = sorted(call.seconds for call in row)
        right = sum(is_right(call, call.last) for call in row)
        low, high = interval(right, len(row))
        table.add_row(
            label,
            *(str(counts[kind] or "") for kind in AnsweredBy),
            str(len(row)),
            f"{100 * sum(is_right(call, call.first) for call in row) / len(row):.0f}",
            f"{100 * right / len(row):.0f}",
            f"{100 * low:.0f}-{100 * high:.0f}",
            f"{median(times):.1f}",
            f"{times[int(0.95 * (len(times) - 1))]:.1f}",
        )
    return table


def summary(calls: Sequence[AnsweredCall]) -> dict[str, Any]:
    """Return the key figures: shares from 0 to 1 with intervals, and times in seconds."""
    people = [call for call in calls if call.kind is AnsweredBy.HUMAN]
    machines = [call for call in calls if call.kind in MACHINES]
    kept = sum(call.last not in MACHINES for call in people)
    caught = sum(call.last in MACHINES for call in machines)
    beeped = [call for call in calls if call.kind is AnsweredBy.VOICEMAIL and call.beeps]
    left = [call.began for call in beeped if call.began is not None]
    after = [began for began in left if began > 0]
    silent = [
        call for call in calls if call.kind is AnsweredBy.VOICEMAIL and not call.beeps and not call.recorded
    ]
    behind = [call.began for call in silent if call.began is not None]
    return {
        "humans_kept": kept / max(1, len(people)),
        "humans_kept_95": interval(kept, len(people)),
        "machines_caught": caught / max(1, len(machines)),
        "machines_caught_95": interval(caught, len(machines)),
        "human_p50_s": median(call.after_words for call in people) if people else None,
        "messages": f"{len(after)} of {len(beeped)} after the beep, {len(left) - len(after)} before",
        "after_beep_p50_s": median(after) if after else None,
        "after_beep_max_s": max(after) if after else None,
        "without_beep": f"{len([b for b in behind if b > 0])} of {len(silent)} after the words",
        "without_beep_p50_s": median(behind) if behind else None,
    }
