"""The questions of ``questions.toml``, by kind, in two halves."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Half(StrEnum):
    """The part of the set: one half to tune prompts on, the other to report, or both."""

    TUNE = "tune"
    REPORT = "report"
    BOTH = "both"


HALVES = (Half.TUNE, Half.REPORT)
"""The halves of the set."""
UNKNOWN = "unknown"
"""The kind of questions whose answers the agent cannot know."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a caller says, one or more turns, and the phrases that decide whether the last answer is right.

    right: the answer contains at least ``least`` of them. wrong: it contains none of them.
    """

    kind: str
    half: Half
    turns: tuple[str, ...]
    right: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    least: int = 1


def read(file: Path | None = None) -> list[Question]:
    """Return the questions of a TOML file; the default is the set of this package."""
    text = (file or Path(__file__).with_name("questions.toml")).read_text(encoding="utf-8")
    return [
        Question(
            kind,
            HALVES[number % len(HALVES)],
            _tuple(entry["ask"]),
            _tuple(entry.get("right", ())),
            _tuple(entry.get("wrong", ())),
            entry.get("least", 1),
        )
        for kind, entries in tomllib.loads(text).items()
        for number, entry in enumerate(entries)
    ]


def _tuple(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
