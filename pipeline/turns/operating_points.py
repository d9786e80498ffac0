"""Named settings for the end of a turn: eager, balanced and patient.

Each is a point on the curve of cut-offs against waits. docs/lab/turns.md has the figures of each, and
``rejoinder bench turns`` measures them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from rejoinder.pipeline.options import Endpointing

TurnTaking = Literal["eager", "balanced", "patient"]
"""The name of an operating point."""


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """What an operating point sets in ``Endpointing``; its fields have the same names there."""

    patience: float
    unsure_wait_ms: int
    max_wait_ms: int


POINTS: Mapping[TurnTaking, OperatingPoint] = {
    "eager": OperatingPoint(patience=4.0, unsure_wait_ms=600, max_wait_ms=1_800),
    "balanced": OperatingPoint(patience=16.0, unsure_wait_ms=800, max_wait_ms=2_200),
    "patient": OperatingPoint(patience=24.0, unsure_wait_ms=1_400, max_wait_ms=2_600),
}
"""The operating points, the fastest first. ``Endpointing`` has the settings of ``balanced``."""


def turn_taking(name: TurnTaking, base: Endpointing | None = None, **more: Any) -> Endpointing:
    """Return the endpointing of an operating point.

    base: has the other settings; by default the defaults. more: fields of ``Endpointing`` that are set
    besides, or instead. Raises ValueError for an unknown name or a value out of range.
    """
    if name not in POINTS:
        raise ValueError(f"turn_taking is {name!r}: it must be one of {', '.join(POINTS)}")
    return replace(base or Endpointing(), **asdict(POINTS[name]) | more)
