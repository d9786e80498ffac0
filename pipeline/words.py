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
CJK = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
"""Chinese and Japanese characters, for a class of a regular expression."""
NO_BLANKS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff" + CJK
"""The characters of scripts without blanks between words: Thai, Lao, Burmese, Khmer, Japanese and Chinese."""


def normalise(text: str) -> str:
    """Return the text in lower case, without punctuation and with single blanks, for comparisons."""
    return " ".join(re.sub(r"[^\w\s']", " ", text.lower()).split())
