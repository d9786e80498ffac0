"""Joins the words of two language models: only whole words are given out, and no word twice."""

from __future__ import annotations

import re
import unicodedata

from rejoinder.pipeline.words import CJK, NO_BLANKS

LONGEST_HELD_WORD = 40
"""Most characters held back as an incomplete word."""
SEAM_WORDS = 400
"""Most of the last words that a continuation is compared with."""
CJK_WORD = 0.5
"""What a Chinese or Japanese character counts of a word: chance often puts one on both sides."""
ALPHABET_WORD = 0.25
"""What a character counts of a word in Thai and the other scripts with letters and no blanks."""
_SIGNS = rf"[^\w\s{NO_BLANKS}]*"
_TOKEN = re.compile(rf"{_SIGNS}[{NO_BLANKS}]{_SIGNS}|[^\s{NO_BLANKS}]+")
"""A word. In scripts without blanks that is a character, with the punctuation around it."""
_VOWELS_AHEAD = frozenset("เแโใไເແໂໃໄ")
"""Thai and Lao vowels that are written in front of the consonant that they follow in speech."""
_CJK = re.compile(f"[{CJK}]")
_CHARACTER = re.compile(f"[{NO_BLANKS}]")


class WholeWords:
    """Holds back the last word of a stream until it is complete.

    A model that dies inside of a word leaves nothing of it behind. ``ClauseSplitter`` needs the blank behind
    a word too, so nothing is heard later.
    """

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> str:
        """Add text; return all of it up to the end of the last whole word."""
        text = self._rest + text
        end = next((at for at in range(len(text), 0, -1) if _ends(text, at)), 0)
        if len(text) - end > LONGEST_HELD_WORD:
            end = len(text)
        self._rest = text[end:]
        return text[:end]

    def flush(self) -> str:
        """Return the last word of a stream that came to its end."""
        text, self._rest = self._rest, ""
        return text


class Seam:
    """Removes from a continuation what repeats the end, or all, of the words before it.

    The continuation is held back as long as it may be a repetition, and not any longer. Case and punctuation
    make no difference.

    before: the words given out so far. least: fewest words that count as a repetition. A model that was only
    instructed to go on often repeats its last word. One that continues the text itself may write "that that".
    """

    def __init__(self, before: str, least: int = 1) -> None:
        words = _TOKEN.findall(before)[-SEAM_WORDS:]
        self._before = [_normal(word) for word in words]
        self._worth = list(map(_worth, words))
        self._least = least
        self._follows_blank = before[-1:].isspace()
        self._text = ""
        self._open = bool(self._before)

    def feed(self, text: str) -> str:
        """Add text of the continuation; return what is new."""
        if not self._open:
            return self._trimmed(text)
        self._text += text
        return self._new(final=False)

    def flush(self) -> str:
        """End the continuation; return what was held back and repeats nothing."""
        return self._new(final=True) if self._open else ""

    def _new(self, final: bool) -> str:
        found = list(_TOKEN.finditer(self._text))
        if found and not final and found[-1].end() == len(self._text):
            found.pop()  # the word may go on
        words = [_normal(one[0]) for one in found]
        repeated = 0
        for start in range(len(self._before)):
            tail = self._before[start:]
            if tail[: len(words)] != words[: len(tail)]:
                continue
            if len(tail) > len(words) and not final:
                return ""  # it may become a longer repetition
            enough = (
                start == 0 or sum(self._worth[start:]) >= self._least
            )  # all of it: the server does not prefill
            if enough and len(tail) <= len(words):
                repeated = max(repeated, len(tail))
        self._open = False
        text, self._text = self._text, ""
        rest = text[found[repeated - 1].end() :] if repeated else text
        return self._trimmed(rest)

    def _trimmed(self, text: str) -> str:
        """Return the text without blanks in front, where a blank is out already."""
        if self._follows_blank:
            text = text.lstrip()
            self._follows_blank = not text
        return text


def _ends(text: str, at: int) -> bool:
    """Return whether a word has ended in front of a place: behind a blank, and before the next character."""
    last, following = text[at - 1], text[at : at + 1]
    if last.isspace():
        return True
    begins = _CHARACTER.match(following) is not None and not unicodedata.category(following).startswith("M")
    return begins and last not in _VOWELS_AHEAD


def _worth(word: str) -> float:
    """Return what a word counts as: 1, or a part of it for a character of a script without blanks."""
    if _CHARACTER.search(word) is None:
        return 1.0
    return CJK_WORD if _CJK.search(word) else ALPHABET_WORD


def _normal(word: str) -> str:
    kept = (sign for sign in word if sign.isalnum() or unicodedata.category(sign).startswith("M"))
    return "".join(kept).lower() or word
