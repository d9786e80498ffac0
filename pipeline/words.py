"""English words: their form for comparisons, and those that another word normally follows."""

from __future__ import annotations

import re

FUNCTION_WORDS = frozenset(
    "a an the my your our their its his her to of in on at by for from with about into and or but so"
    " if that which who as than because is are was were be been can could will would should not"
    " very more".split()
)
"""Articles, prepositions, conjunctions and auxiliary verbs: few turns or clauses end with one. Each use adds
words of its own."""


def normalise(text: str) -> str:
    """Return the text in lower case, without punctuation and with single blanks, for comparisons."""
    return " ".join(re.sub(r"[^\w\s']", " ", text.lower()).split())
