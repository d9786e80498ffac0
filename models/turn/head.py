"""A last layer that tells ends of turns from pauses, on what a network makes of the sound."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rejoinder.pipeline.audio.chunk import Samples


@dataclass(frozen=True, slots=True)
class Head:
    """The log-odds of the end are ``bias`` plus ``weights`` times the sound, in so many numbers."""

    bias: float
    weights: Samples

    def probability(self, sound: Samples) -> float:
        """Return how likely it is that the turn is over."""
        return 1.0 / (1.0 + math.exp(-min(max(self.bias + float(self.weights @ sound), -30.0), 30.0)))

    def write(self, path: Path) -> None:
        """Write it into the file that is shipped."""
        weights = [round(float(weight), 4) for weight in self.weights]
        path.write_text(
            json.dumps({"bias": round(self.bias, 4), "weights": weights}) + "\n", encoding="utf-8"
        )


def load_head(path: Path) -> Head:
    """Return the last layer in a file that the fit has written."""
    table = json.loads(path.read_text(encoding="utf-8"))
    return Head(table["bias"], np.asarray(table["weights"], np.float32))
