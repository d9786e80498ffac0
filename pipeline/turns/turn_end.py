"""Is the turn over? A logistic model of what is known in a pause, each part of it with a name.

Neither the silence, nor the sound, nor the words are enough alone; together they are worth more than each.
The weights are in ``turn_end.json`` beside this file, in a table for each of what is known: what the turn
model says, what the recogniser says, ``both`` or ``neither``. ``rejoinder bench turns --fit`` makes them out
of recordings, and tells what they are worth on speakers that they were not made from (docs/lab/turns.md).
What no recording of ours can teach is a plain rule, ``hint``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

Weights = Mapping[str, float]
"""What each feature adds to the log-odds of the end, per unit of it."""
Tables = Mapping[str, Weights]
"""The weights where so much is known: ``turn_model``, ``recogniser``, ``both`` or ``neither``."""

FEATURES = {
    "always": "1: what is left when all others are 0",
    "mean": "mean log-odds of the turn model's answers in this pause",
    "lowest": "log-odds of its lowest answer in it",
    "recogniser": "log-odds of the recogniser's answer, by the sound of the last words",
    "silence": "log of the silence so far, in units of 200 ms",
    "stop": "1 if the words end in a full stop",
    "question": "1 if they end in a question mark",
    "open": "1 if they end in a comma, in dots or in a dash",
    "stop_silence": "'stop' times 'silence': after a full stop a long silence says less",
}
"""Every feature, and what it means."""

UNIT_MS = 200.0
SURE = 0.9
"""An answer is taken to be this sure at most: what sounds surer is wrong as often."""
PATIENT_MS = 32.0
"""Silence that each step of patience costs at least: however sure it is, to be patient is to wait."""
LONG_MS, LIKELY_MORE = 800.0, 4.0
"""After so long a pause more is likely where it is so many times as likely as the end."""
LONG_HARMED_MS = 900.0
"""The same for a speaker who was cut off: most pauses that people make by themselves are shorter."""
UNLIKELY = 0.4
"""Below this the recogniser means that more comes: 7 of 10 pauses, and 6 of 100 ends, none of them early."""
LEANING = frozenset(
    "a an the my your our their its his her to of in on at by for from with about into and or but so if that"
    " which who as than because while although when where what how i we they you he she is are am was were be"
    " been have has had do does did can could will would should may might must not very more any every no"
    " i'm i'll you're we're they're it's don't um uh".split()
)
"""Last words that want another one."""
YES_OR_NO = frozenset("yes yeah yep no nope sure okay ok right correct exactly please thanks maybe".split())
ASKS_YES_OR_NO = re.compile(
    r"(?:^|[.?!,]\s)\s*(?:(?:so|and|then)\s+)?(?:is|are|was|were|do|does|did|can|could|will|would|should|shall|may"
    r"|have|has)\b[^.?!]*\?\s*$",
    re.I,
)
ASKS_ITEMS = re.compile(r"\b(?:spell|letters?|digits?|numbers?|codes?|e-?mail)\b", re.I)
ONE_ITEM = re.compile(r"(?:^|[\s-])(?:\w|\d+|zero|one|two|three|four|five|six|seven|eight|nine)\W*$", re.I)


@dataclass(frozen=True, slots=True)
class Pause:
    """What is known of a pause.

    answers: the turn model's probabilities in this pause, in order. text: the turn's words.
    silence_ms: how long it has lasted. asked: what the agent said before the turn.
    over: the recogniser's probability that the turn is over, None where it has none.
    """

    answers: Sequence[float]
    text: str
    silence_ms: float = UNIT_MS
    asked: str = ""
    over: float | None = None

    @property
    def table(self) -> str:
        """The name of the weights for what is known of it."""
        if self.over is None:
            return "turn_model" if self.answers else "neither"
        return "both" if self.answers else "recogniser"


def wait_ms(pause: Pause, patience: float, tables: Tables | None = None, most: float | None = None) -> float:
    """Return the silence from which on the end is at least ``patience`` times as likely as that more comes.

    It is at least ``PATIENT_MS`` for each step of patience, and ``most`` ms at most, by default ``long_ms``,
    unless more is likely after ``LONG_MS``. tables: other weights than those that are shipped.
    """
    wait = max(PATIENT_MS * patience, _reaches(pause, patience, tables))
    more_is_likely = _reaches(pause, 1.0 / LIKELY_MORE, tables) > LONG_MS
    return wait if more_is_likely else min(wait, most or long_ms(patience))


def long_ms(patience: float) -> float:
    """Return the silence after which whoever may well be done is waited for no longer.

    Most pauses that people make by themselves are shorter, and an end that sounded like none is answered then
    (docs/lab/turns.md). Each step of patience above 4 makes it that much longer: above 6 it is the
    longest wait.
    """
    return LONG_MS * max(1.0, patience - 3.0)


def _reaches(pause: Pause, odds_of_end: float, tables: Tables | None) -> float:
    """Return the silence from which on the end has these odds."""
    weights = (tables or SHIPPED)[pause.table]
    known = features(replace(pause, silence_ms=UNIT_MS))
    missing = math.log(odds_of_end) - odds(replace(pause, silence_ms=UNIT_MS), tables)
    slope = weights["silence"] + weights["stop_silence"] * known["stop"]
    if slope <= 0.0:  # no silence would do
        return 0.0 if missing <= 0.0 else math.inf
    return UNIT_MS * math.exp(min(missing / slope, 20.0))


def odds(pause: Pause, tables: Tables | None = None) -> float:
    """Return the log-odds of the end."""
    weights = (tables or SHIPPED)[pause.table]
    fitted = sum(weights[name] * value for name, value in features(pause).items())
    return fitted + hint(pause.text, pause.asked)


def features(pause: Pause) -> dict[str, float]:
    """Return the value of each feature; those of a model only where it has answered."""
    silence = math.log(max(pause.silence_ms, 1.0) / UNIT_MS)
    ends = ending(pause.text)
    found = {"always": 1.0, "silence": silence, **ends, "stop_silence": ends["stop"] * silence}
    if pause.answers:
        heard = [log_odds(answer) for answer in pause.answers]
        found |= {"mean": sum(heard) / len(heard), "lowest": min(heard)}
    if pause.over is not None:
        found["recogniser"] = log_odds(pause.over)
    return found


def ending(text: str) -> dict[str, float]:
    """Return what the words end in."""
    text = text.rstrip(" \"'”’)")
    unfinished = text.endswith(("..", "…", "-", "–", "—", ",", ";", ":"))
    return {
        "stop": float(text.endswith((".", "!")) and not unfinished),
        "question": float(text.endswith("?")),
        "open": float(unfinished),
    }


def hint(text: str, asked: str = "") -> float:
    """Return what plain rules add to the log-odds.

    A last word such as "my" waits for another one. A yes or a no to a question that wants one is a whole
    answer. Who was asked for a number or a spelling is not done after a letter. Our recordings are read aloud
    and answer nobody, so that these sizes are not fitted: 1 makes the end 2.7 times less or more likely.
    """
    words = re.findall(r"[\w']+", text.lower())
    if not words:
        return 0.0
    if ASKS_ITEMS.search(asked) and ONE_ITEM.search(text):
        return -2.0
    if ASKS_YES_OR_NO.search(asked) and YES_OR_NO.issuperset(words):
        return 2.0
    return -1.0 if words[-1] in LEANING and not text.rstrip().endswith("?") else 0.0


def wants_more(text: str, asked: str = "", over: float | None = None) -> bool:
    """Tell whether the words, or how they end by their recogniser, say that more comes."""
    sounds_so = over is not None and over < UNLIKELY
    return sounds_so or bool(ending(text)["open"]) or hint(text, asked) < 0.0


def log_odds(answer: float) -> float:
    """Return the log-odds of a probability, at most those of ``SURE``."""
    bounded = min(max(answer, 1.0 - SURE), SURE)
    return math.log(bounded / (1.0 - bounded))


def load(path: Path) -> dict[str, dict[str, float]]:
    """Return the tables in a file that the fit has written."""
    tables: dict[str, dict[str, float]] = json.loads(path.read_text(encoding="utf-8"))
    return tables


SHIPPED = load(Path(__file__).with_name("turn_end.json"))
