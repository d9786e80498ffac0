"""Fits the rule for the end of a turn, and cross-validates it on speakers that are not in the fit.

The fit stacks logistic regressions: a last layer for Smart Turn and one for Whisper's encoder, from each
network's features, and ``turn_end``, from the answers of these layers, the words and the silence. The fit of
``turn_end`` uses only answers about speakers on whom the layers were not fitted: other answers are too
certain.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from random import Random

import numpy as np

from rejoinder.agent.bench.turns.rules import Observation, Wait, WaitAt
from rejoinder.models.hints import install
from rejoinder.models.stt.whisper import END_WINDOWS
from rejoinder.models.turn import smart_turn
from rejoinder.models.turn.head import Head, Windows
from rejoinder.pipeline.audio.chunk import Samples
from rejoinder.pipeline.errors import PipelineError
from rejoinder.pipeline.options import Endpointing
from rejoinder.pipeline.turns import turn_end
from rejoinder.pipeline.turns.pause import ANSWER_MS

STEP_MS = 96
"""Silence between two rows of the fit from the same pause, in milliseconds."""
LONGEST_ROW_MS = 2_300
"""Longest silence of a row of the fit, in milliseconds."""
HEAD_RIDGE = 1_200.0
"""Ridge of the last layer of Smart Turn."""
ENDING_RIDGE = 1_200.0
"""Ridge of the last layer of Whisper's encoder."""
RIDGE = 10.0
"""Ridge of the tables of ``turn_end``."""
STILL = 1e-6
"""Gradient below which the fit stops."""
HEAD_ANSWERS = 6
"""Most sounds of each pause in the fit of the last layer; there are no more up to the longest wait."""
FOLDS = 5
"""Folds of the cross-validation."""
LEAST_SPEAKERS = 20
"""Fewest speakers of a fit."""
FITTED_WHISPER = "tiny.en"
"""The Whisper model to whose words ``turn_end`` is fitted. The tables serve all recognisers."""
Matrix = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Heard:
    """The models' answers about a pause: probabilities of its end by the turn model and by the recogniser.

    end_probability: None if the recogniser gives none.
    """

    probabilities: tuple[float, ...]
    end_probability: float | None


@dataclass(frozen=True, slots=True)
class Fit:
    """The fitted parts: last layers for Smart Turn and for Whisper, None without data, and ``turn_end``.

    whisper: name of the Whisper model to which ``ending`` belongs.
    """

    head: Head | None
    ending: Head | None
    tables: turn_end.Tables
    whisper: str = ""

    def heard(self, seen: Observation) -> Heard:
        """Return the answers about an observation, with the fitted layers where its features are known."""
        probabilities = tuple(probability for _, probability in seen.judged)
        if self.head is not None and seen.sounds:
            probabilities = tuple(self.head.probability(sound) for sound in seen.sounds)
        end_probability = seen.over
        if self.ending is not None and len(seen.ending):
            end_probability = self.ending.probability(seen.ending)
        return Heard(probabilities, end_probability)

    def write(self, checkout: Path) -> None:
        """Write the fit into the shipped files of a checkout. Parts without a fit stay unchanged.

        For a recogniser other than ``FITTED_WHISPER``, this writes only its own layer.
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


SHIPPED_FIT = Fit(smart_turn.FITTED_HEAD, None, turn_end.SHIPPED)
"""The fit that the package contains."""


def check() -> None:
    """Raise PipelineError if scikit-learn, which ``fit`` needs, is not installed."""
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
    """Fit the regressions to observations with one recogniser."""
    made = _heads(seen)
    if made.whisper != FITTED_WHISPER:
        return replace(made, tables=turn_end.SHIPPED)
    unseen: dict[int, Heard] = {}
    for rest, part in folds(_speakers(seen)):
        fold = _heads([seen[place] for place in rest])
        unseen |= {place: fold.heard(seen[place]) for place in part}
    return replace(made, tables=_tables(seen, [unseen[place] for place in range(len(seen))]))


def folds(speakers: Sequence[str], count: int = FOLDS) -> list[tuple[list[int], list[int]]]:
    """Return ``count`` pairs of indices: what to fit on, and what to judge. A pair shares no speaker."""
    from sklearn.model_selection import PredefinedSplit

    order = sorted(set(speakers))
    Random(0).shuffle(order)  # the same folds each time, so that figures can be compared
    fold = {speaker: place % count for place, speaker in enumerate(order)}
    split = PredefinedSplit([fold[speaker] for speaker in speakers]).split()
    return [(rest.tolist(), part.tolist()) for rest, part in split]


def cross_validated(seen: Sequence[Observation]) -> list[Fit]:
    """Return for each observation the fit on the half of the speakers that its own speaker is not in."""
    fits: dict[int, Fit] = {}
    for rest, part in folds(_speakers(seen), 2):
        fits |= dict.fromkeys(part, fit([seen[place] for place in rest]))
    return [fits[place] for place in range(len(seen))]


def can_be_fitted(seen: Sequence[Observation]) -> bool:
    """Return whether there are enough speakers, with judged ends and pauses in both halves of them."""
    return len(set(_speakers(seen))) >= LEAST_SPEAKERS and all(
        {seen[place].resumes is None for place in rest if seen[place].judged} == {True, False}
        for rest, _ in folds(_speakers(seen), 2)
    )


def fused(seen: Sequence[Observation], fits: Sequence[Fit], options: Endpointing) -> Wait:
    """Return the rule of a session, with the fit that belongs to each observation."""
    unlimited = _waits(seen, fits)

    def wait(each: Observation, known: int) -> float:
        if not each.text:
            return options.max_wait_ms
        least = options.min_wait_ms if known else ANSWER_MS
        ms = unlimited(each, known, options.patience, options.unsure_wait_ms)
        return min(max(ms, least), options.max_wait_ms)

    return wait


def fused_waits(seen: Sequence[Observation], fits: Sequence[Fit]) -> WaitAt:
    """Return the rule by the odds alone, for any patience: without ``unsure_wait_ms`` and other limits."""
    unlimited = _waits(seen, fits)
    return lambda each, known, patience: unlimited(each, known, patience, math.inf)


def _waits(
    seen: Sequence[Observation], fits: Sequence[Fit]
) -> Callable[[Observation, int, float, float], float]:
    chosen = {id(each): (fit.tables, fit.heard(each)) for each, fit in zip(seen, fits, strict=True)}

    def wait(each: Observation, known: int, patience: float, unsure_ms: float) -> float:
        tables, heard = chosen[id(each)]
        pause = turn_end.PauseEvidence(
            heard.probabilities[:known], each.text, end_probability=heard.end_probability
        )
        return turn_end.wait_ms(pause, patience, unsure_ms, tables)

    return wait


def _speakers(seen: Sequence[Observation]) -> list[str]:
    return [each.speaker for each in seen]


def _heads(seen: Sequence[Observation]) -> Fit:
    sounds = [(sound, each.resumes is None) for each in seen for sound in each.sounds[:HEAD_ANSWERS]]
    name = next((each.whisper for each in seen if each.whisper), "")
    endings = [(each.ending, each.resumes is None) for each in seen if each.whisper]
    # Without the sounds of all pauses (no Smart Turn, or one without named tensors), its layer is not fitted.
    whole = all(each.sounds for each in seen if each.judged)
    ending = _head(endings, ENDING_RIDGE, END_WINDOWS)
    return Fit(_head(sounds, HEAD_RIDGE) if whole else None, ending, {}, name)


def _head(rows: Sequence[tuple[Samples, bool]], ridge: float, windows: Windows = ()) -> Head | None:
    if not rows:
        return None
    x, y = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    bias, *weights = logistic(x, y, ridge)
    return Head(float(bias), np.array(weights, np.float32), windows)


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
