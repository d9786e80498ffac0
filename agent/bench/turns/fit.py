"""The fit of the rule for the end of a turn, and what it is worth on speakers that it was not made from.

The fit stacks logistic regressions: a last layer for Smart Turn and one for Whisper's encoder, from each
network's features, and ``turn_end``, from the answers of these layers, the words and the silence.
``turn_end`` must not see the layers' answers about speakers that they were fitted on: those answers are too
certain.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from random import Random

import numpy as np

from rejoinder.agent.bench.turns.rules import Observation, Wait
from rejoinder.models.hints import install
from rejoinder.models.turn import smart_turn
from rejoinder.models.turn.head import Head
from rejoinder.pipeline.audio.chunk import Samples
from rejoinder.pipeline.errors import PipelineError
from rejoinder.pipeline.options import Endpointing
from rejoinder.pipeline.turns import turn_end
from rejoinder.pipeline.turns.pause import ANSWER_MS

STEP_MS = 96
"""Silence between two rows of the fit that are made from one pause."""
LONGEST_ROW_MS = 2_300
"""Longest silence from which a row of the fit is made."""
HEAD_RIDGE = 1_200.0
"""Ridge of the last layer of Smart Turn."""
ENDING_RIDGE = 1_200.0
"""Ridge of the last layer of Whisper's encoder."""
RIDGE = 10.0
"""Ridge of the tables of ``turn_end``."""
STILL = 1e-6
"""The fit stops at a gradient smaller than this."""
HEAD_ANSWERS = 6
"""Most sounds of each pause in the fit of the last layer: all of them up to the longest wait."""
FOLDS = 5
"""Folds of the cross-validation."""
LEAST_SPEAKERS = 20
"""Fewest speakers of a fit."""
FITTED_WHISPER = "tiny.en"
"""The Whisper whose words ``turn_end`` is fitted to. Other recognisers' are read by the same tables."""
Matrix = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Heard:
    """What the models say of a pause: the turn model's probabilities, and the recogniser's, if it has one."""

    probabilities: tuple[float, ...]
    end_probability: float | None


@dataclass(frozen=True, slots=True)
class Fit:
    """What is fitted: last layers for Smart Turn and Whisper, None without sounds, and ``turn_end``.

    whisper: which one's ``ending`` is.
    """

    head: Head | None
    ending: Head | None
    tables: turn_end.Tables
    whisper: str = ""

    def heard(self, seen: Observation) -> Heard:
        """Return what the models say of an observation."""
        probabilities = tuple(probability for _, probability in seen.judged)
        if self.head is not None and seen.sounds:
            probabilities = tuple(self.head.probability(sound) for sound in seen.sounds)
        end_probability = seen.over
        if self.ending is not None and len(seen.ending):
            end_probability = self.ending.probability(seen.ending)
        return Heard(probabilities, end_probability)

    def write(self, checkout: Path) -> None:
        """Write it into the files that are shipped, in a checkout; what is not fitted stays.

        Of another recogniser than the usual one nothing but its own layer is written.
        """
        if self.ending is not None:
            self.ending.write(checkout / "models/stt" / f"whisper_end.{self.whisper}.json")
        if self.tables is turn_end.SHIPPED:
            return
        tables = {name: _rounded(table) for name, table in {**turn_end.SHIPPED, **self.tables}.items()}
        (checkout / "pipeline/turns/turn_end.json").write_text(
            json.dumps(tables, indent=2) + "\n", encoding="utf-8"
        )
        if self.head is not None:
            self.head.write(checkout / "models/turn/smart_turn.json")


SHIPPED_FIT = Fit(smart_turn.HEAD, None, turn_end.SHIPPED)
"""The fit that the package contains."""


def check() -> None:
    """Raise PipelineError if ``fit`` could not fit, for want of scikit-learn."""
    if find_spec("sklearn") is None:
        raise PipelineError(f"the fit of the rule needs scikit-learn; run: {install('bench')}")


def logistic(x: Matrix, y: Matrix, ridge: float) -> Matrix:
    """Return the weights of a ridge regression on standardised columns, the constant first.

    x: shape (n, columns). y: 0.0 or 1.0, shape (n,), both at least once. ridge: half of it times the sum of
    the squared weights is added to the loss. Returns shape (1 + columns,).
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    model = LogisticRegression(C=1.0 / ridge, solver="newton-cholesky", tol=STILL)
    model.fit(scaler.fit_transform(x), y)
    slopes = model.coef_[0] / scaler.scale_
    return np.concatenate((model.intercept_ - scaler.mean_ @ slopes, slopes))


def fit(seen: Sequence[Observation]) -> Fit:
    """Fit the regressions to these observations, of one recogniser."""
    made = _heads(seen)
    if made.whisper != FITTED_WHISPER:
        return replace(made, tables=turn_end.SHIPPED)
    unseen: dict[int, Heard] = {}
    for rest, part in folds(_speakers(seen)):
        fold = _heads([seen[place] for place in rest])
        unseen |= {place: fold.heard(seen[place]) for place in part}
    return replace(made, tables=_tables(seen, [unseen[place] for place in range(len(seen))]))


def folds(speakers: Sequence[str], count: int = FOLDS) -> list[tuple[list[int], list[int]]]:
    """Return the places of what to fit on and of what to judge, ``count`` times, sharing no speaker."""
    from sklearn.model_selection import PredefinedSplit

    everybody = sorted(set(speakers))
    Random(0).shuffle(everybody)  # the same folds each time, or figures could not be compared
    fold = {speaker: place % count for place, speaker in enumerate(everybody)}
    split = PredefinedSplit([fold[speaker] for speaker in speakers]).split()
    return [(rest.tolist(), part.tolist()) for rest, part in split]


def cross_validated(seen: Sequence[Observation]) -> list[Fit]:
    """Return for each observation what was fitted on the half of the speakers to whom it does not belong."""
    fits: dict[int, Fit] = {}
    for rest, part in folds(_speakers(seen), 2):
        fits |= dict.fromkeys(part, fit([seen[place] for place in rest]))
    return [fits[place] for place in range(len(seen))]


def can_be_fitted(seen: Sequence[Observation]) -> bool:
    """Return whether there are enough speakers, and judged ends and pauses in both halves of them."""
    return len(set(_speakers(seen))) >= LEAST_SPEAKERS and all(
        {seen[place].resumes is None for place in rest if seen[place].judged} == {True, False}
        for rest, _ in folds(_speakers(seen), 2)
    )


def fused(seen: Sequence[Observation], fits: Sequence[Fit], patience: float) -> Wait:
    """Return the rule of a session, with what was fitted for each observation."""
    chosen = {id(each): (fit.tables, fit.heard(each)) for each, fit in zip(seen, fits, strict=True)}
    options = Endpointing()

    def wait(each: Observation, known: int) -> float:
        tables, heard = chosen[id(each)]
        pause = turn_end.PauseEvidence(
            heard.probabilities[:known], each.text, end_probability=heard.end_probability
        )
        if not each.text:
            return options.max_wait_ms
        ms = turn_end.wait_ms(pause, patience, tables)
        return min(max(ms, options.min_wait_ms if known else ANSWER_MS), options.max_wait_ms)

    return wait


def _speakers(seen: Sequence[Observation]) -> list[str]:
    return [each.speaker for each in seen]


def _heads(seen: Sequence[Observation]) -> Fit:
    sounds = [(sound, each.resumes is None) for each in seen for sound in each.sounds[:HEAD_ANSWERS]]
    name = next((each.whisper for each in seen if each.whisper), "")
    endings = [(each.ending, each.resumes is None) for each in seen if each.whisper]
    # A network that is missing, or without names for its tensors, has the layer that it came with.
    whole = all(each.sounds for each in seen if each.judged)
    return Fit(_head(sounds, HEAD_RIDGE) if whole else None, _head(endings, ENDING_RIDGE), {}, name)


def _head(rows: Sequence[tuple[Samples, bool]], ridge: float) -> Head | None:
    if not rows:
        return None
    x, y = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    bias, *weights = logistic(x, y, ridge)
    return Head(float(bias), np.array(weights, np.float32))


def _tables(seen: Sequence[Observation], heard: Sequence[Heard]) -> turn_end.Tables:
    """Fit one table per combination of known inputs, if any observation has it."""
    rows: dict[str, list[tuple[dict[str, float], bool]]] = {}
    for each, models in zip(seen, heard, strict=True):
        for silence in range(2 * STEP_MS, LONGEST_ROW_MS, STEP_MS):
            now = each.pause + silence
            if (each.resumes is not None and now >= each.resumes) or not each.text:
                break
            judged = models.probabilities[: sum(when <= now for when, _ in each.judged)]
            known = {
                (said, end): turn_end.PauseEvidence(said, each.text, silence, end_probability=end)
                for said in ((), judged)
                for end in (None, models.end_probability)
            }
            for pause in known.values():
                rows.setdefault(pause.table, []).append((turn_end.features(pause), each.resumes is None))
    return {name: _table(*zip(*found, strict=True)) for name, found in rows.items()}


def _table(rows: Sequence[dict[str, float]], over: Sequence[bool]) -> dict[str, float]:
    names = [name for name in rows[0] if name != "always"]
    x = np.array([[row[name] for name in names] for row in rows])
    constant, *weights = logistic(x, np.array(over, np.float64), RIDGE)
    return {"always": float(constant), **dict(zip(names, map(float, weights), strict=True))}


def _rounded(table: turn_end.Weights) -> dict[str, float]:
    return {name: round(weight, 3) for name, weight in table.items()}
