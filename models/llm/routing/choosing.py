"""Decides which language model answers a question: the first rule whose conditions all hold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from rejoinder.models.llm.failover.seam import ALPHABET_WORD, CJK_WORD
from rejoinder.models.llm.routing.settings import Difficulty, RouteSettings
from rejoinder.models.specs import size_or_spec
from rejoinder.pipeline.words import CJK, NO_BLANKS, normalise

NO_RULE = "no rule matches"
"""The reason where the first model of the list is asked."""
_UNKNOWN: Mapping[str, object] = {"tools": None, "languages": [], "keys": [], "budget_above": None}
"""Conditions on facts that are known only once a reply begins, with their values when unset."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules know of a question.

    words: of the caller's turn. tools: whether the reply may call any. language: of the recogniser, "" if
    unknown. minute: local time, in minutes from midnight. load: share of its time that the busiest engine
    spends on urgent work. cost_left: what is left of the day's budget. key: SHA-256 of the call's API key, ""
    for none. budget: share of the call's budget that is used.
    """

    words: int = 0
    tools: bool = False
    language: str = ""
    minute: int = 0
    load: float = 0.0
    cost_left: float = inf
    key: str = ""
    difficulty: Difficulty = "hard"
    budget: float = 0.0


def word_count(text: str) -> int:
    """Return the words of a text, rounded up.

    A Chinese or Japanese character counts as ``CJK_WORD`` of a word, and one of the other scripts without
    blanks, such as Thai, as ``ALPHABET_WORD``.
    """
    signs = re.findall(f"[{NO_BLANKS}]", text)
    others = re.sub(f"[{NO_BLANKS}]", " ", text)
    shares = sum(CJK_WORD if re.match(f"[{CJK}]", sign) else ALPHABET_WORD for sign in signs)
    return len(normalise(others).split()) + math.ceil(shares)


class Choice(NamedTuple):
    """The name of the model that is asked first, "" for that of the list, and why."""

    model: str
    reason: str


def choose(asked: Facts, rules: Sequence[tuple[int, RouteSettings]]) -> Choice:
    """Return the model of the first rule that matches. rules: with their numbers.

    The reason names the rule and its conditions, with the configured values, as in "rule 2: max_words 12".
    """
    for number, rule in rules:
        if matches(rule, asked):
            conditions = ", ".join(f"{name} {_text(value)}" for name, value in rule.conditions.items())
            return Choice(rule.model, f"rule {number}: {conditions}")
    return Choice("", NO_RULE)


def matches(rule: RouteSettings, asked: Facts) -> bool:
    """Return whether all conditions of a rule hold."""
    begin, end = rule.minutes
    in_hours = begin <= asked.minute < end if begin < end else not end <= asked.minute < begin
    return (
        (rule.min_words or 0) <= asked.words <= (inf if rule.max_words is None else rule.max_words)
        and (rule.tools is None or rule.tools == asked.tools)
        and (not rule.languages or asked.language in rule.languages)
        and in_hours
        and (rule.load_above is None or asked.load > rule.load_above)
        and (rule.cost_left_below is None or asked.cost_left < rule.cost_left_below)
        and (rule.budget_above is None or asked.budget > rule.budget_above)
        and (not rule.keys or any(asked.key.startswith(key) for key in rule.keys))
        and rule.difficulty in (None, asked.difficulty)
    )


def foreseen(asked: Facts, rules: Sequence[RouteSettings], blind: frozenset[str] = frozenset()) -> str:
    """Return the model that probably answers, while tools, language and key are not known yet.

    That is "", the first of the list, if the first rule that may match depends on these. blind: the models
    that cannot call tools, where others can: their rules match only without tools. The load counts as low.
    """
    for rule in rules:
        if matches(rule.model_copy(update=dict(_UNKNOWN)), asked):
            known = rule.conditions.keys().isdisjoint(_UNKNOWN) and rule.model not in blind
            return rule.model if known else ""
    return ""


def covers(first: RouteSettings, second: RouteSettings) -> bool:
    """Return whether the first rule matches each question that the second one matches."""
    most = [inf if rule.max_words is None else rule.max_words for rule in (first, second)]
    load = first.load_above is None or (
        second.load_above is not None and second.load_above >= first.load_above
    )
    cost = first.cost_left_below is None or (
        second.cost_left_below is not None and second.cost_left_below <= first.cost_left_below
    )
    budget = first.budget_above is None or (
        second.budget_above is not None and second.budget_above >= first.budget_above
    )
    return (
        (first.min_words or 0) <= (second.min_words or 0)
        and most[0] >= most[1]
        and first.tools in (None, second.tools)
        and (not first.languages or _within(second.languages, first.languages))
        and _day(second) <= _day(first)
        and load
        and cost
        and budget
        and (not first.keys or (bool(second.keys) and all(_starts(key, first.keys) for key in second.keys)))
        and first.difficulty in (None, second.difficulty)
    )


def mistake(rules: Sequence[RouteSettings], models: Sequence[str], day_budget: float) -> str:
    """Return the sentence about the first rule that cannot work, "" if all can.

    models: the models in ``llm``. A rule that an earlier one covers is never reached.
    """
    for place, rule in enumerate(rules):
        where = f"rule {place + 1}"
        if rule.model not in models:
            there = ", ".join(map(size_or_spec, models))
            return f"{where}: {size_or_spec(rule.model)!r} is none of the models in llm: {there}"
        if rule.cost_left_below is not None and not day_budget:
            return f"{where}: cost_left_below needs a day_budget"
        if rule.cost_left_below is not None and rule.cost_left_below > day_budget:
            return f"{where}: cost_left_below is {rule.cost_left_below:g}, more than the day_budget"
        for before, earlier in enumerate(rules[:place]):
            if covers(earlier, rule):
                return f"{where} is never reached: rule {before + 1} matches all of its questions first"
    return ""


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return " ".join(part[:8] for part in value)  # of a key's hash, no more than tells it apart
    return f"{value:g}" if isinstance(value, float) else str(value)


def _within(inner: Sequence[str], outer: Sequence[str]) -> bool:
    return bool(inner) and set(inner) <= set(outer)


def _starts(key: str, starts: Sequence[str]) -> bool:
    return any(key.startswith(start) for start in starts)


def _day(rule: RouteSettings) -> set[int]:
    begin, end = rule.minutes
    whole = range(24 * 60)
    return set(range(begin, end)) if begin < end else set(whole) - set(range(end, begin))
