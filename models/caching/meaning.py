"""The guard of the cache: decides in plain rules whether two English questions have the same answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from rejoinder.models.caching.words import EMPTY, FILLERS, FIRST_SYNONYMS, MOVABLE, REWRITES, SPOKEN_NUMBERS

QUESTION_KINDS = frozenset(
    "what when where who whose why how howmany howmuch howlong howfar howoften can need has should".split()
)
"""Words that a question may begin with, in the form of the rewrites; others begin with an auxiliary verb."""
_INNER_CAPITAL = re.compile(r"(?<=[\w,;:] )[A-Z][\w'’]*")
"""A word with a capital that does not begin a sentence."""
_RULES = [(re.compile(pattern), replacement) for pattern, replacement in REWRITES]


@dataclass(frozen=True, slots=True)
class Meaning:
    """A question in a form for comparisons.

    kind: what it asks for, such as when or howmany. words: all other words that count, sorted.
    order: those of them whose order counts. names: words with a capital inside a sentence, sorted.
    """

    kind: str
    words: tuple[str, ...]
    order: tuple[str, ...]
    names: tuple[str, ...]


def plain_words(text: str) -> str:
    """Return a text in lower case, without the punctuation of sentences.

    What is part of a word stays: 3.5 is not 35, and C++ is not C.
    """
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text.lower().replace("’", "'"))
    plain = re.sub(r"[,;!?¿¡\"“”()\[\]{}…—–]|(?<!\d):|:(?!\d)|(?<!\d)\.|\.(?!\d)", " ", plain)
    return " ".join(plain.split())


def names_in(text: str) -> tuple[str, ...]:
    """Return the words with a capital inside a sentence: Turkey is no turkey, and Windows are no windows."""
    found = (word for word in _INNER_CAPITAL.findall(text) if word != "I" and not word.startswith("I'"))
    return tuple(sorted({word.lower() for word in found} - FIRST_SYNONYMS.keys()))


@lru_cache(maxsize=4096)
def meaning(text: str) -> Meaning | None:
    """Return the meaning of a question, None where no words are left that could say it.

    Numbers, names, negations, dates, units, comparatives, prepositions and all other words stay, unless they
    are fillers; only the tables in ``words`` make two words one.
    """
    plain = plain_words(text)
    for pattern, replacement in _RULES:
        plain = " ".join(pattern.sub(replacement, plain).split())
    words = [_canonical(word) for word in plain.split() if word not in FILLERS]
    kind = words[0] if words else ""
    rest = [word for word in words[1:] if word not in EMPTY] if kind in QUESTION_KINDS | EMPTY else words
    if kind not in QUESTION_KINDS:  # "is", "do" and the like ask the same thing: yes or no
        kind = "yes or no" if kind in EMPTY else "statement"
    if not rest:
        return None
    order = tuple(word for word in rest if not _is_movable(word, kind))
    return Meaning(kind, tuple(sorted(rest)), order, names_in(text))


def _canonical(word: str) -> str:
    word = SPOKEN_NUMBERS.get(word, word)
    if word in FIRST_SYNONYMS:
        return FIRST_SYNONYMS[word]
    singular = word
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        singular = (
            word[:-3] + "y"
            if word.endswith("ies")
            else word[:-2]
            if re.search("(sh|ch|x|o)es$", word)
            else word[:-1]
        )
    return FIRST_SYNONYMS.get(singular, singular)


def _is_movable(word: str, kind: str) -> bool:
    superlative = kind == "what" and len(word) > 4 and word.endswith("est")
    return word in MOVABLE or superlative
