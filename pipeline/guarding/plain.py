"""Brings a text to the form in which words are compared: without case, width, accents' spelling and signs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
"""Letters of languages that are written without blanks between words."""
_APOSTROPHES = dict.fromkeys(map(ord, "’ʼ‘＇"), "'")
_HALF_WIDTH_MARKS = "\uff9e\uff9f"
"""The marks of voiced half-width kana, which are letters of their own to Unicode."""
_UNSPOKEN = "*_`~"
"""Signs of Markdown, which the voice leaves out, also within a word."""


def plain(text: str) -> tuple[str, list[int]]:
    """Return a text in its plain form, and for each of its characters the end of what it stands for.

    Invisible characters and signs of Markdown are gone. A letter and its accents are one, however they are
    written.
    """
    if text.isascii():
        kept = [(sign, at + 1) for at, sign in enumerate(text.lower()) if sign not in _UNSPOKEN]
        return "".join(sign for sign, _ in kept), [end for _, end in kept]
    found, ends = [], []
    begin = 0
    for at in range(1, len(text) + 1):
        if at < len(text) and (unicodedata.combining(text[at]) or text[at] in _HALF_WIDTH_MARKS):
            continue  # it belongs to the letter in front of it
        part = unicodedata.normalize("NFKC", text[begin:at].translate(_APOSTROPHES)).casefold()
        for sign in part:
            if sign not in _UNSPOKEN and unicodedata.category(sign) != "Cf":
                found.append(sign)
                ends.append(at)
        begin = at
    return "".join(found), ends


def words_of(text: str) -> Iterator[tuple[str, int]]:
    """Yield the words of a plain text, each with its end in it. Apostrophes within a word are part of it."""
    begin: int | None = None
    unspaced = False
    for at, sign in enumerate(text):
        if _in_word(sign):
            kind = bool(UNSPACED.match(sign))
            if begin is not None and kind != unspaced and sign.isalpha():  # Acme in a Chinese sentence
                yield text[begin:at], at
                begin = at
            if begin is None or sign.isalpha():
                unspaced = kind
            begin = at if begin is None else begin
        elif begin is not None and not (sign == "'" and at + 1 < len(text) and _in_word(text[at + 1])):
            yield text[begin:at], at
            begin = None
    if begin is not None:
        yield text[begin:], len(text)


def forms(word: str) -> Iterator[str]:
    """Yield a word and what it is without the 's of a possessive, or the l' of an elision."""
    yield word
    head, apostrophe, tail = word.partition("'")
    if apostrophe and tail in ("s", ""):
        yield head
    elif apostrophe and len(head) <= 2:
        yield tail


def _in_word(sign: str) -> bool:
    return sign.isalnum() or unicodedata.category(sign)[0] == "M"
