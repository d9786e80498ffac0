"""Fits the classifier of easy and hard questions: ``python agent/bench/routing/fit.py TEXTS``.

TEXTS is the folder ``text`` of the recordings: CLINC150 and SLURP (requests with an intent), Natural
Questions and WebQuestions (questions for facts). Labels follow from the source, not from a listener: a
request is easy if its intent is among ``EASY_INTENTS``, and all others are hard. Each intent is in one fold
only, so that the held-out figures are about kinds of questions that the fit has not seen.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from rejoinder.models.llm.routing.difficulty import DIFFICULTY_FILE, features
from rejoinder.pipeline.words import normalise

EASY_INTENTS = frozenset(
    """greeting goodbye thank_you yes no maybe repeat are_you_a_bot what_is_your_name who_made_you
    how_old_are_you where_are_you_from do_you_have_pets what_are_your_hobbies who_do_you_work_for tell_joke
    fun_fact meaning_of_life what_can_i_ask_you general_joke general_greet""".split()
)
"""Intents whose answers need no fact of the world, no calculation, no look-up and no tool."""
MIXED_INTENTS = ("general_quirky", "quirky")
"""SLURP's intents for all that fits nowhere else. They are both easy and hard, and left out."""
TEXT_FILES = (
    "assistant_requests_clinc150",
    "assistant_requests_slurp",
    "questions_nq_open",
    "questions_webquestions",
)
"""The files with questions."""
LEAST_PRECISION = 0.7
"""The threshold is the lowest at which this share of what is called easy is easy, in held-out folds."""
DIFFICULTY_FOLDS = 5
"""Parts of the cross-validation."""


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """A question. group: its intent, or a group of its own for a question without one."""

    text: str
    group: str
    easy: bool


@dataclass(frozen=True, slots=True)
class DifficultyFigures:
    """Held-out figures; each fold is judged at the threshold of the other folds.

    found: share of the easy questions that are called easy. always_hard: the accuracy of that answer.
    """

    questions: int
    easy: int
    called_easy: int
    precision: float
    found: float
    accuracy: float
    always_hard: float
    auc: float


def labelled(folder: Path) -> list[LabelledQuestion]:
    """Return the questions of all files, each wording once. Raises OSError."""
    found: dict[str, LabelledQuestion] = {}
    for name in TEXT_FILES:
        for number, line in enumerate((folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()):
            row = json.loads(line)
            if (intent := row.get("intent", "")) in MIXED_INTENTS:
                continue
            group = intent or f"{name} {number}"
            words = normalise(row["text"])
            found.setdefault(words, LabelledQuestion(words, group, intent in EASY_INTENTS))
    return list(found.values())


def fit(questions: Sequence[LabelledQuestion]) -> tuple[dict[str, object], DifficultyFigures]:
    """Return the table for ``DIFFICULTY_FILE``, and the held-out figures."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict

    names = list(features(""))
    table = np.array([[features(one.text)[name] for name in names] for one in questions])
    easy = np.array([one.easy for one in questions])
    model = LogisticRegression(C=1.0, max_iter=2_000)
    groups = [one.group for one in questions]
    folds = list(
        StratifiedGroupKFold(DIFFICULTY_FOLDS, shuffle=True, random_state=0).split(table, easy, groups)
    )
    held_out = cross_val_predict(model, table, easy, cv=folds, method="predict_proba")[:, 1]
    called = np.zeros(len(questions), bool)
    for others, judged in folds:
        called[judged] = held_out[judged] >= _threshold(held_out[others], easy[others])
    right = int((called & easy).sum())
    figures = DifficultyFigures(
        len(questions),
        int(easy.sum()),
        int(called.sum()),
        right / max(int(called.sum()), 1),
        right / int(easy.sum()),
        float((called == easy).mean()),
        float((~easy).mean()),
        float(roc_auc_score(easy, held_out)),
    )
    model.fit(table, easy)
    weights = {name: round(float(weight), 4) for name, weight in zip(names, model.coef_[0], strict=True)}
    fitted: dict[str, object] = {"weights": weights, "bias": round(float(model.intercept_[0]), 4)}
    fitted["threshold"] = _threshold(held_out, easy)
    return fitted, figures


def _threshold(held_out: np.ndarray, easy: np.ndarray) -> float:
    for threshold in np.arange(0.05, 0.96, 0.05):
        called = held_out >= threshold
        if called.any() and easy[called].mean() >= LEAST_PRECISION:
            return round(float(threshold), 2)
    return 0.95


if __name__ == "__main__":
    fitted, figures = fit(labelled(Path(sys.argv[1])))
    DIFFICULTY_FILE.write_text(json.dumps(fitted, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({**asdict(figures), **fitted}, indent=1))
