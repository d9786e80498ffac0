"""Counts which paraphrases the cache takes for the same question, and which contrasts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rejoinder.agent.bench.caching.sets import Pair, contrasts, paraphrases
from rejoinder.models.caching.meaning import meaning
from rejoinder.pipeline.words import normalise


@dataclass(frozen=True, slots=True)
class HalfResult:
    """The figures of one half of the sets.

    exact: paraphrases with the same words. hits: with the same meaning. false: contrasts with the same
    meaning, by kind.
    """

    paraphrases: int
    exact: int
    hits: int
    contrasts: int
    false: dict[str, int]


def same(pair: Pair) -> bool:
    """Return whether the cache takes two questions for one."""
    one = meaning(pair.one)
    return one is not None and one == meaning(pair.other)


def judge_half(half: int) -> HalfResult:
    """Return the figures of a half: 0 is for fitting the rules, 1 for judging them."""
    alike, unlike = paraphrases()[half::2], contrasts()[half::2]
    return HalfResult(
        len(alike),
        sum(normalise(pair.one) == normalise(pair.other) for pair in alike),
        sum(map(same, alike)),
        len(unlike),
        dict(Counter(pair.kind for pair in unlike if same(pair))),
    )


def strangers() -> tuple[int, int]:
    """Return how many pairs of unrelated questions have one meaning, and how many pairs there are.

    Every question of the sets meets every other one; those that paraphrases link are left out.
    """
    roots: dict[str, str] = {}
    for pair in [*paraphrases(), *contrasts()]:
        for text in (pair.one, pair.other):
            roots.setdefault(text, text)
    for pair in paraphrases():
        one, other = _root(roots, pair.one), _root(roots, pair.other)
        roots[one] = other
    texts: Sequence[str] = list(roots)
    found = all_ = 0
    for place, one in enumerate(texts):
        for other in texts[:place]:
            if _root(roots, one) != _root(roots, other):
                all_ += 1
                found += same(Pair(one, other))
    return found, all_


def _root(roots: dict[str, str], text: str) -> str:
    while roots[text] != text:
        text = roots[text]
    return text
