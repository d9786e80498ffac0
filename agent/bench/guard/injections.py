"""Measures how often the rules notice a prompt injection, and how often they suspect a harmless request."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from rich.table import Table

from rejoinder.pipeline.guarding.injection import suspected

INJECTION_HALVES = ("fit", "judge")
"""The half of the set that the rules were chosen by, and the half that judges them."""


@dataclass(frozen=True, slots=True)
class Noticed:
    """The result of one half. missed: attacks without a mark. suspects: harmless requests with one."""

    half: str
    attacks: int
    harmless: int
    missed: list[str]
    suspects: list[str]


def noticed(half: str) -> Noticed:
    """Return the result of one half of the set."""
    text = (files("rejoinder.agent.bench.guard") / f"injections.{half}.toml").read_text(encoding="utf-8")
    given = tomllib.loads(text)
    attacks, harmless = given["attacks"], given["harmless"]
    missed = [words for words in attacks if not suspected(words)]
    return Noticed(
        half, len(attacks), len(harmless), missed, [words for words in harmless if suspected(words)]
    )


def injections_table(found: Sequence[Noticed]) -> Table:
    """Return the table of both halves."""
    shown = Table(
        "half", "attacks noticed", "harmless requests suspected", title="prompt injection, by rules"
    )
    for half in found:
        seen = half.attacks - len(half.missed)
        shown.add_row(half.half, f"{seen} of {half.attacks}", f"{len(half.suspects)} of {half.harmless}")
    return shown
