"""A logistic layer that separates ends of turns from pauses, on top of a network's features."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rejoinder.pipeline.audio.chunk import Samples

Windows = tuple[tuple[int, int], ...]
"""Spans of a sequence of states, in order."""


@dataclass(frozen=True, slots=True)
class Head:
    """The log-odds that the turn is over are ``bias + weights @ sound``.

    weights: float32 [features]. windows: for a sequence of states, the spans whose means are the features:
    first and end, in states before the end of the audio; empty for features that are no sequence.
    """

    bias: float
    weights: Samples
    windows: Windows = ()

    def probability(self, sound: Samples) -> float:
        """Return the probability that the turn is over. sound: float32 [features]."""
        return 1.0 / (1.0 + math.exp(-min(max(self.bias + float(self.weights @ sound), -30.0), 30.0)))

    def write(self, path: Path) -> None:
        """Write the layer as JSON to ``path``."""
        weights = [round(float(weight), 4) for weight in self.weights]
        table = {"bias": round(self.bias, 4), "weights": weights, "windows": self.windows}
        path.write_text(json.dumps(table) + "\n", encoding="utf-8")


def load_head(path: Path) -> Head:
    """Return the layer in a file that ``Head.write`` has written."""
    table = json.loads(path.read_text(encoding="utf-8"))
    windows = tuple((since, until) for since, until in table["windows"])
    return Head(table["bias"], np.asarray(table["weights"], np.float32), windows)
