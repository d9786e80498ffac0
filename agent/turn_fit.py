"""The fit of the rule for the end of a turn, and what it is worth on speakers that it was not made from.

Two logistic regressions stand one on the other: Smart Turn's last layer, from what its network makes of the
sound, and ``turn_end``, from that layer's answers, the words and the silence. The second must not see answers
about speakers that the first was made from, who would sound surer than anybody ever will.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from rejoinder.agent.bench_turns import Observation, Wait
from rejoinder.models.smart_turn import HEAD, Head
from rejoinder.pipeline import turn_end
from rejoinder.pipeline.endpointer import ANSWER_MS
from rejoinder.pipeline.options import Endpointing

STEP_MS, LONGEST_MS = 96, 2_300
"""Silences at which a row of the fit is made from a pause, as long as it lasts."""
HEAD_RIDGE, RIDGE = 1_200.0, 10.0
STILL = 1e-6
"""A step of the fit so small is the last."""
HEAD_ANSWERS = 6
"""So many sounds of each pause make the last layer: all of them, up to the longest wait."""
FOLDS, LEAST_SPEAKERS = 5, 20
Matrix = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Answers = dict[int, tuple[float, ...]]
"""The turn model's answers about each observation, by its place."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What is fitted: Smart Turn's last layer, None without sounds, and the tables of ``turn_end``."""

    head: Head | None
    tables: turn_end.Tables

    def answers(self, seen: Observation) -> tuple[float, ...]:
        """Return the turn model's answers about an observation."""
        if self.head is None or not seen.sounds:
            return tuple(probability for _, probability in seen.judged)
        return tuple(self.head.probability(sound) for sound in seen.sounds)

    def write(self, checkout: Path) -> None:
        """Write it into the two files that are shipped, in a checkout of the sources."""
        tables = {name: _rounded(table) for name, table in self.tables.items()}
        (checkout / "pipeline" / "turn_end.json").write_text(
            json.dumps(tables, indent=2) + "\n", encoding="utf-8"
        )
        if self.head is not None:
            weights = [round(float(weight), 4) for weight in self.head.weights]
            head = {"bias": round(self.head.bias, 4), "weights": weights}
            (checkout / "models" / "smart_turn.json").write_text(json.dumps(head) + "\n", encoding="utf-8")


SHIPPED = Fit(HEAD, turn_end.SHIPPED)


def logistic(x: Matrix, y: Matrix, ridge: float) -> Matrix:
    """Return the weights of a ridge regression on standardised columns, the constant first (Newton steps)."""
    mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-9
    rows = np.column_stack((np.ones(len(x)), (x - mean) / scale))
    penalty = ridge * np.eye(rows.shape[1])
    penalty[0, 0] = 1e-3
    weights: Matrix = np.zeros(rows.shape[1])
    for _ in range(20):
        likely = 1.0 / (1.0 + np.exp(-np.clip(rows @ weights, -30, 30)))
        curved = rows.T @ (rows * (likely * (1.0 - likely) + 1e-6)[:, None]) + penalty
        step = np.linalg.solve(curved, rows.T @ (likely - y) + penalty @ weights)
        weights -= step
        if np.abs(step).max() < STILL:
            break
    slopes = weights[1:] / scale
    return np.concatenate(([weights[0] - mean @ slopes], slopes))


def fit(seen: Sequence[Observation]) -> Fit:
    """Fit both regressions to these observations."""
    if not all(each.sounds for each in seen if each.judged):
        plain = Fit(None, {})
        return Fit(None, _tables(seen, {place: plain.answers(each) for place, each in enumerate(seen)}))
    unseen: Answers = {}
    for rest, part in folds(_speakers(seen)):
        fold = Fit(_head([seen[place] for place in rest]), {})
        unseen |= {place: fold.answers(seen[place]) for place in part}
    return Fit(_head(seen), _tables(seen, unseen))


def folds(speakers: Sequence[str], count: int = FOLDS) -> list[tuple[list[int], list[int]]]:
    """Return the places of what to fit on and of what to judge, ``count`` times, sharing no speaker."""
    everybody = sorted(set(speakers))
    Random(0).shuffle(everybody)
    found = []
    for fold in range(count):
        away = set(everybody[fold::count])
        part = [place for place, speaker in enumerate(speakers) if speaker in away]
        found.append(([place for place in range(len(speakers)) if place not in set(part)], part))
    return found


def cross_validated(seen: Sequence[Observation]) -> list[Fit]:
    """Return for each observation what was fitted on the half of the speakers to whom it does not belong."""
    fits: dict[int, Fit] = {}
    for rest, part in folds(_speakers(seen), 2):
        fits |= dict.fromkeys(part, fit([seen[place] for place in rest]))
    return [fits[place] for place in range(len(seen))]


def can_be_fitted(seen: Sequence[Observation]) -> bool:
    """Tell whether there are enough speakers, and ends and pauses that were judged in both halves of them."""
    return len(set(_speakers(seen))) >= LEAST_SPEAKERS and all(
        {seen[place].resumes is None for place in rest if seen[place].judged} == {True, False}
        for rest, _ in folds(_speakers(seen), 2)
    )


def fused(seen: Sequence[Observation], fits: Sequence[Fit], patience: float) -> Wait:
    """Return the rule of a session, with what was fitted for each observation."""
    chosen = {id(each): (fit.tables, fit.answers(each)) for each, fit in zip(seen, fits, strict=True)}
    options = Endpointing()

    def wait(each: Observation, known: int) -> float:
        tables, answers = chosen[id(each)]
        pause = turn_end.Pause(answers[:known], each.text)
        if not each.text:
            return options.max_wait_ms
        ms = turn_end.wait_ms(pause, patience, tables)
        return min(max(ms, options.min_wait_ms if known else ANSWER_MS), options.max_wait_ms)

    return wait


def _speakers(seen: Sequence[Observation]) -> list[str]:
    return [each.speaker for each in seen]


def _head(seen: Sequence[Observation]) -> Head:
    rows = [(sound, each.resumes is None) for each in seen for sound in each.sounds[:HEAD_ANSWERS]]
    x, y = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    bias, *weights = logistic(x, y, HEAD_RIDGE)
    return Head(float(bias), np.array(weights, np.float32))


def _tables(seen: Sequence[Observation], answers: Answers) -> turn_end.Tables:
    heard: list[dict[str, float]] = []
    unheard: list[dict[str, float]] = []
    over: list[bool] = []
    over_unheard: list[bool] = []
    for place, each in enumerate(seen):
        for silence in range(2 * STEP_MS, LONGEST_MS, STEP_MS):
            now = each.pause + silence
            if (each.resumes is not None and now >= each.resumes) or not each.text:
                break
            known = answers[place][: sum(when <= now for when, _ in each.judged)]
            unheard.append(turn_end.features(turn_end.Pause((), each.text, silence)))
            over_unheard.append(each.resumes is None)
            if known:
                heard.append(turn_end.features(turn_end.Pause(known, each.text, silence)))
                over.append(each.resumes is None)
    return {"heard": _table(heard, over), "unheard": _table(unheard, over_unheard)}


def _table(rows: Sequence[dict[str, float]], over: Sequence[bool]) -> dict[str, float]:
    names = [name for name in rows[0] if name != "always"]
    x = np.array([[row[name] for name in names] for row in rows])
    constant, *weights = logistic(x, np.array(over, np.float64), RIDGE)
    return {"always": float(constant), **dict(zip(names, map(float, weights), strict=True))}


def _rounded(table: turn_end.Weights) -> dict[str, float]:
    return {name: round(weight, 3) for name, weight in table.items()}
