"""Reads the sets: paraphrases, and contrasts.

The lines of even number are for fitting the rules, the others for judging them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SETS_FOLDER = Path(__file__).parent
"""The folder of the files."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two questions. kind: what differs in a contrast, "" for a paraphrase."""

    one: str
    other: str
    kind: str = ""


def _rows(name: str) -> list[list[str]]:
    lines = (SETS_FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines]


def paraphrases() -> Sequence[Pair]:
    """Return pairs with the same answer."""
    return [Pair(one, other) for one, other in _rows("paraphrases.tsv")]


def contrasts() -> Sequence[Pair]:
    """Return pairs that sound alike and have other answers."""
    return [Pair(one, other, kind) for kind, one, other in _rows("contrasts.tsv")]
