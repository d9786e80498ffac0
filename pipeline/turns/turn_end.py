"""Predicts whether a pause is the end of a turn: a logistic model with named features.

It combines the silence, the sound and the words, because none of them suffices alone. The weights are in
``turn_end.json`` beside this file. There is one table for each set of known probabilities: that of the turn
model, that of the recogniser, ``both`` or ``neither``. ``rejoinder bench turns --fit`` fits the weights to
recordings and evaluates them on other speakers (docs/lab/turns.md). ``hint`` adds rules that the recordings
cannot teach.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rejoinder.pipeline.words import FUNCTION_WORDS

Weights = Mapping[str, float]
"""Log-odds of the end per unit of each feature."""
Tables = Mapping[str, Weights]
"""Weights by the known probabilities: ``turn_model``, ``recogniser``, ``both`` or ``neither``."""

UNIT_MS = 200.0
"""Unit of the feature ``silence``."""
SURE = 0.95
"""Upper limit of a probability, and one minus its lower limit: one beyond them is wrong as often."""
LIKELY_MORE = 4.0
"""More speech counts as likely if it is this many times as likely as the end."""
UNLIKELY = 0.4
"""An end probability of the recogniser below this predicts more speech. It holds for 7 of 10 pauses within a
turn and for 6 of 100 ends."""
UNFINISHED = FUNCTION_WORDS | frozenset(
    "while although when where what how i we they you he she am have has had do does did may might must"
    " any every no i'm i'll you're we're they're it's don't um uh".split()
)
"""Last words of an unfinished turn."""
YES_OR_NO = frozenset("yes yeah yep no nope sure okay ok right correct exactly please thanks maybe".split())
"""Words that answer a yes-or-no question."""
ASKS_YES_OR_NO = re.compile(
    r"(?:^|[.?!,]\s)\s*(?:(?:so|and|then)\s+)?(?:is|are|was|were|do|does|did|can|could|will|would|should|shall|may"
    r"|have|has)\b[^.?!]*\?\s*$",
    re.I,
)
"""Text that ends with a yes-or-no question."""
ASKS_ITEMS = re.compile(r"\b(?:spell|letters?|digits?|numbers?|codes?|e-?mail)\b", re.I)
"""Text that asks for letters or digits."""
ONE_ITEM = re.compile(r"(?:^|[\s-])(?:\w|\d+|zero|one|two|three|four|five|six|seven|eight|nine)\W*$", re.I)
"""Text that ends with one letter or digit."""


@dataclass(frozen=True, slots=True)
class PauseEvidence:
    """What is known of one pause: the inputs of the prediction.

    probabilities: the turn model's, that the turn is over, in order.
    text: the words of the turn.
    silence_ms: length of the pause.
    asked: the agent's words before the turn.
    end_probability: the recogniser's ``Transcript.end_probability``, None if unknown.
    """

    probabilities: Sequence[float]
    text: str
    silence_ms: float = UNIT_MS
    asked: str = ""
    end_probability: float | None = None

    @property
    def table(self) -> str:
        """The name of the table of weights for the known probabilities."""
        if self.end_probability is None:
            return "turn_model" if self.probabilities else "neither"
        return "both" if self.probabilities else "recogniser"


def wait_ms(pause: PauseEvidence, patience: float, unsure_ms: float, tables: Tables | None = None) -> float:
    """Return the silence, in ms, after which the end is ``patience`` times as likely as more speech.

    It is at most ``unsure_ms``, unless more speech is likely after that silence. Most pauses within a turn
    are shorter; an end that did not sound like one is answered then (docs/lab/turns.md). tables: weights to
    use instead of those shipped.
    """
    weights = (tables or SHIPPED)[pause.table]
    known = features(replace(pause, silence_ms=UNIT_MS))
    slope = weights["silence"] + weights["stop_silence"] * known["stop"]
    now = _log_odds_of(known, weights) + hint(pause.text, pause.asked)
    wait = _reaches(patience, now, slope)
    more_is_likely = _reaches(1.0 / LIKELY_MORE, now, slope) > unsure_ms
    return wait if more_is_likely else min(wait, unsure_ms)


def _reaches(odds_of_end: float, now: float, slope: float) -> float:
    """Return the silence, in ms, at which the end has these odds.

    now: its log-odds after ``UNIT_MS``. slope: what they gain while the silence grows by a factor of e.
    """
    missing = math.log(odds_of_end) - now
    if slope <= 0.0:  # silence does not raise the odds
        return 0.0 if missing <= 0.0 else math.inf
    return UNIT_MS * math.exp(min(missing / slope, 20.0))


def odds(pause: PauseEvidence, tables: Tables | None = None) -> float:
    """Return the log-odds of the end."""
    weights = (tables or SHIPPED)[pause.table]
    return _log_odds_of(features(pause), weights) + hint(pause.text, pause.asked)


def _log_odds_of(found: Mapping[str, float], weights: Mapping[str, float]) -> float:
    return sum(weights[name] * value for name, value in found.items())


def features(pause: PauseEvidence) -> dict[str, float]:
    """Return the value of each feature; features of unknown probabilities are left out.

    always: 1; its weight is the log-odds where all others are 0.
    mean, lowest: the mean and the lowest log-odds of the turn model's answers in this pause.
    recogniser: log-odds of the recogniser's answer, by the sound of the last words.
    silence: log of the silence so far, in units of ``UNIT_MS``.
    stop, question: 1 if the words end in a full stop, or in a question mark.
    open: 1 if they end in a comma, in dots or in a dash.
    stop_silence: ``stop`` times ``silence``: after a full stop a long silence says less.
    """
    silence = math.log(max(pause.silence_ms, 1.0) / UNIT_MS)
    ends = ending(pause.text)
    found = {"always": 1.0, "silence": silence, **ends, "stop_silence": ends["stop"] * silence}
    if pause.probabilities:
        heard = [log_odds(probability) for probability in pause.probabilities]
        found |= {"mean": sum(heard) / len(heard), "lowest": min(heard)}
    if pause.end_probability is not None:
        found["recogniser"] = log_odds(pause.end_probability)
    return found


def ending(text: str) -> dict[str, float]:
    """Return the features for the punctuation at the end of the text."""
    text = text.rstrip(" \"'”’)")
    unfinished = text.endswith(("..", "…", "-", "–", "—", ",", ";", ":"))
    return {
        "stop": float(text.endswith((".", "!")) and not unfinished),
        "question": float(text.endswith("?")),
        "open": float(unfinished),
    }


def hint(text: str, asked: str = "") -> float:
    """Return the log-odds that fixed rules add.

    A last word such as "my" predicts another word. A yes or a no to a yes-or-no question is a complete
    answer. A single letter or digit is an incomplete answer to a request for a number or a spelling. The
    values are not fitted, because the recordings are read aloud and contain no answers. A value of 1
    multiplies the odds of the end by 2.7.
    """
    words = re.findall(r"[\w']+", text.lower())
    if not words:
        return 0.0
    if ASKS_ITEMS.search(asked) and ONE_ITEM.search(text):
        return -2.0
    if ASKS_YES_OR_NO.search(asked) and YES_OR_NO.issuperset(words):
        return 2.0
    return -1.0 if words[-1] in UNFINISHED and not text.rstrip().endswith("?") else 0.0


def wants_more(text: str, asked: str = "", end_probability: float | None = None) -> bool:
    """Return whether the words, or their sound as the recogniser judges it, predict more speech."""
    sounds_so = end_probability is not None and end_probability < UNLIKELY
    return sounds_so or bool(ending(text)["open"]) or hint(text, asked) < 0.0


def log_odds(probability: float) -> float:
    """Return the log-odds of a probability, limited by ``SURE`` on both sides."""
    bounded = min(max(probability, 1.0 - SURE), SURE)
    return math.log(bounded / (1.0 - bounded))


def load(path: Path) -> dict[str, dict[str, float]]:
    """Return the tables of weights from a JSON file."""
    tables: dict[str, dict[str, float]] = json.loads(path.read_text(encoding="utf-8"))
    return tables


SHIPPED = load(Path(__file__).with_name("turn_end.json"))
"""The weights in the repository."""
