"""Who has the floor."""

from __future__ import annotations

from enum import Enum, auto


class Floor(Enum):
    """The states of the floor: who is speaking, or about to."""

    NOBODY = auto()
    USER = auto()
    PAUSE = auto()
    AGENT = auto()
    OVERLAP = auto()
