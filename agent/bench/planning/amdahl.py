"""Amdahl's law: what more machines, or more cores, bring where a part of the work has one place."""

from __future__ import annotations

import math


def speedup(serial: float, places: float) -> float:
    """Return how many times the work of one place ``places`` do, if a share ``serial`` of it has one place.

    Source: Amdahl, "Validity of the single processor approach to achieving large scale computing
    capabilities", AFIPS 1967.
    """
    return 1.0 / (serial + (1.0 - serial) / places)


def most(serial: float) -> float:
    """Return the limit of the speedup with any number of places."""
    return 1.0 / serial if serial else math.inf
