"""Judges whether a question is easy for a small language model: a logistic regression on its words.

Easy means small talk and words about the conversation itself: greetings, thanks, jokes, questions about the
agent. They need no fact, no calculation and no look-up. ``agent/bench/routing/fit.py`` has fitted the
weights; docs/lab/routing.md says on what, and how well it works.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from rejoinder.models.llm.routing.settings import Difficulty
from rejoinder.pipeline.words import FUNCTION_WORDS, normalise

DIFFICULTY_FILE = Path(__file__).with_name("difficulty.json")
"""The weight of each feature, the bias, and the probability from which a question is easy."""
MOST_JUDGED_CHARACTERS = 400
"""A longer question is hard, and is not looked at."""

_NUMBERS = frozenset(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    " seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety".split()
)
_ASKS = frozenset("what which who whom whose when where why how".split())
_MEASURES = frozenset("much many long far old tall big high often fast deep heavy late soon".split())
_CONNECTIVES = frozenset(
    "and or but because if then so while although unless between than versus both".split()
)
_REASONS = frozenset(
    "why explain compare difference describe calculate convert translate define recommend suggest"
    " best".split()
)
_SOCIAL = frozenset(
    "hi hello hey thanks thank bye goodbye please sorry okay ok yes yeah yep no nope sure great nice cool"
    " good morning evening night welcome joke jokes funny laugh pardon repeat again".split()
)
_YOU = frozenset("you your yours yourself you're you've".split())
_ME = frozenset("i my me mine i'm i've i'd we our us".split())
_ACTS = frozenset(
    "set add remove delete cancel book order call send play turn show list find check remind schedule make"
    " create update change get buy pay transfer open start stop".split()
)


def features(text: str) -> dict[str, float]:
    """Return the features of a question by name. Case and punctuation make no difference."""
    words = normalise(text).split()
    count = len(words) or 1
    first = words[0] if words else ""
    content = [word for word in words if word not in FUNCTION_WORDS and word not in _YOU | _ME | _ASKS]
    return {
        "length": math.log2(1 + len(words)),
        "content": float(len(content)) / 4.0,
        "letters": sum(map(len, content)) / (len(content) or 1) / 4.0,
        "longest": max(map(len, words), default=0) / 8.0,
        "asks": float(first in _ASKS),
        "measures": float("how" in words and any(word in _MEASURES for word in words)),
        "digits": float(any(word in _NUMBERS or not word.isalpha() for word in _plain(words))),
        "connectives": sum(word in _CONNECTIVES for word in words) / 2.0,
        "reasons": float(any(word in _REASONS for word in words)),
        "social": float(any(word in _SOCIAL for word in words)),
        "social_first": float(first in _SOCIAL),
        "you": sum(word in _YOU for word in words) / 2.0,
        "you_share": sum(word in _YOU for word in words) / count,
        "me": sum(word in _ME for word in words) / 2.0,
        "acts": float(any(word in _ACTS for word in words)),
        "function_share": sum(word in FUNCTION_WORDS for word in words) / count,
    }


def probability(text: str) -> float:
    """Return the probability that a question is easy, by the fit. It takes some 20 microseconds."""
    weights, bias, _ = _fitted()
    odds = bias + sum(weights[name] * value for name, value in features(text).items())
    return 1.0 / (1.0 + math.exp(-min(max(odds, -30.0), 30.0)))


def judge(text: str) -> Difficulty:
    """Return whether a question is easy or hard. One without words is hard, and so is a long one."""
    text = text.strip()
    if not any(map(str.isalnum, text)) or len(text) > MOST_JUDGED_CHARACTERS:
        return "hard"
    return "easy" if probability(text) >= _fitted()[2] else "hard"


def _plain(words: list[str]) -> list[str]:
    return [word.replace("'", "").replace("_", "") or "a" for word in words]


@cache
def _fitted() -> tuple[Mapping[str, float], float, float]:
    table = json.loads(DIFFICULTY_FILE.read_text(encoding="utf-8"))
    return table["weights"], table["bias"], table["threshold"]
