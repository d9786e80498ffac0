"""Words: their forms for comparisons, and English ones that another word normally follows."""

from __future__ import annotations

import re
import unicodedata

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


_SYMBOLS = frozenset("#%‰&@*")
"""Punctuation in Unicode that is a symbol to a reader: C#, 5%, R&D."""
_DASHES = frozenset("-‐‑‒–—−")
CJK = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
"""Chinese and Japanese characters, for a class of a regular expression."""
NO_BLANKS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff" + CJK
"""The characters of scripts without blanks between words: Thai, Lao, Burmese, Khmer, Japanese and Chinese."""
_NO_BLANKS = re.compile(f"[{NO_BLANKS}]")


def without_blanks(character: str) -> bool:
    """Return whether a character belongs to a script that has no blanks between words."""
    return _NO_BLANKS.match(character) is not None


def same_words(one: str, other: str) -> bool:
    """Return whether two texts say the same.

    Case counts for nothing, and neither does punctuation at the end or between words. A symbol counts, as in
    C++, C# and $5, and so does punctuation in a number, as in 3.5 and -5.
    """
    return one == other or _said(one) == _said(other)


def _said(text: str) -> list[str]:
    """Return the words and the symbols of a text. In scripts without blanks, each character is a word."""
    text = unicodedata.normalize("NFC", text).casefold().replace("’", "'")
    said: list[str] = []
    ends = True  # whether a word has ended
    for at, character in enumerate(text):
        if unicodedata.category(character)[0] in "LNM":
            apart = without_blanks(character)
            if ends or apart:
                said.append(character)
            else:
                said[-1] += character
            ends = apart
        elif _counts(text, at):
            said.append(character if character not in _DASHES else "-")
            ends = True
        else:
            ends = True
    return said


def _counts(text: str, at: int) -> bool:
    """Return whether the sign at a place, which is in no word, changes what is said."""
    sign, before, behind = text[at], text[at - 1 : at], text[at + 1 : at + 2]
    if sign in _DASHES:
        back, ahead = text[:at].rstrip()[-1:], text[at + 1 :].lstrip()[:1]
        return (behind.isdigit() and not before.isalpha()) or (back.isdigit() and ahead.isdigit())
    if sign in _SYMBOLS or unicodedata.category(sign)[0] == "S":
        return True
    if unicodedata.category(sign)[0] != "P":
        return False
    if sign == "'":
        return before.isalpha() and behind.isalpha()
    return behind.isdigit() and (before.isdigit() or (sign == "." and not before.isalpha()))
