"""Stores observations of ``rejoinder bench turns`` in a file, to judge rules without running the models."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rejoinder.agent.bench.turns.rules import Observation
from rejoinder.pipeline.audio.chunk import Samples
from rejoinder.pipeline.errors import PipelineError

DIGITS = 3
"""Decimals of the stored features, whose size is about 1."""


def write(path: Path, seen: Sequence[Observation]) -> None:
    """Write observations as compressed JSON, one object per line."""
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for each in seen:
            row = row_of(each)
            row["sounds"] = [_numbers(sound) for sound in each.sounds]
            row["ending"] = _numbers(each.ending)
            file.write(json.dumps(row) + "\n")


def check(path: Path) -> None:
    """Raise PipelineError if ``write`` cannot write to ``path``; called before minutes of measurement."""
    if path.is_dir() or not path.parent.is_dir():
        raise PipelineError(f"cannot write {path}: it is a folder, or its folder does not exist")


def read(path: Path) -> list[Observation]:
    """Return the observations in a file of ``write``. Raises PipelineError for any other file."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            seen = [_observation(json.loads(line)) for line in file]
    except (OSError, EOFError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise PipelineError(f"{path} is not what --keep writes: {error or type(error).__name__}") from error
    if not seen:
        raise PipelineError(f"{path} is not what --keep writes: nothing is in it")
    return seen


def row_of(seen: Observation) -> dict[str, Any]:
    """Return an observation without the networks' features, for reports."""
    return {name: value for name, value in asdict(seen).items() if name not in ("sounds", "ending")}


def _numbers(sound: Samples) -> list[float]:
    found: list[float] = np.round(sound.astype(float), DIGITS).tolist()
    return found


def _observation(row: dict[str, Any]) -> Observation:
    sounds = tuple(np.asarray(sound, np.float32) for sound in row.pop("sounds"))
    ending, whisper = np.asarray(row.pop("ending"), np.float32), row.pop("whisper")
    judged = tuple((when, probability) for when, probability in row.pop("judged"))
    return Observation(**row, judged=judged, sounds=sounds, ending=ending, whisper=whisper)
