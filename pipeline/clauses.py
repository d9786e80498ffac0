"""Cut a stream of text into pieces that a voice can start on."""

from __future__ import annotations

import re

FIRST_WORDS = 5
"""A first clause without any punctuation is cut after this many words, so that something is heard early."""
LATER_CHARACTERS = 60
"""From this length on, a comma is enough to end a clause; shorter ones wait for the end of the sentence."""
MAX_CHARACTERS = 160
"""No clause is longer: an interrupted voice finishes the clause it is working on before it takes another."""

_SENTENCE = re.compile(r"[.!?…]+[\"')\]*]*\s")
_PHRASE = re.compile(r"[,;:—–][\"')\]*]*\s|\s[—–-]\s|\n")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:mr|mrs|ms|dr|prof|sr|jr|st|vs|etc|no|vol|fig|approx|e\.g|i\.e|a\.m|p\.m|[a-z]|\d+)\.\s$",
    re.IGNORECASE,
)

_LEANING = frozenset(
    "a an the of to in on at by for from with and or but so as if that which who my your our their its his "
    "her is are was were be been not very more most this these those can could will would should".split()
)
"""Words that a voice runs into the next one: a pause after them sounds wrong."""


class ClauseSplitter:
    """Collect text and give back clauses: the first one short, the later ones whole sentences."""

    def __init__(self) -> None:
        self._text = ""
        self._first = True

    def feed(self, text: str) -> list[str]:
        """Add text and return the clauses it completes, with their surrounding blanks removed."""
        self._text += text
        clauses = []
        while (end := self._end()) is not None:
            clause, self._text = self._text[:end].strip(), self._text[end:]
            if clause:
                clauses.append(clause)
                self._first = False
        return clauses

    def flush(self) -> str:
        """Return what is left, which may be empty."""
        clause, self._text = self._text.strip(), ""
        return clause

    def _end(self) -> int | None:
        for match in _SENTENCE.finditer(self._text):
            if not _ABBREVIATION.search(self._text[: match.end()]):
                return match.end()
        least = 4 if self._first else LATER_CHARACTERS
        for match in _PHRASE.finditer(self._text):
            if match.end() >= least:
                return match.end()
        if self._first:
            return _after_words(self._text, FIRST_WORDS)
        if len(self._text) > MAX_CHARACTERS:
            return self._text.rfind(" ", 1, MAX_CHARACTERS) + 1 or MAX_CHARACTERS
        return None


def _after_words(text: str, count: int) -> int | None:
    """Return the end of about ``count`` words, without those at the end that lean on what follows."""
    words = list(re.finditer(r"(\S+)\s+", text))
    if len(words) < count:
        return None
    end = count
    while end > count // 2 and words[end - 1][1].lower() in _LEANING:
        end -= 1
    return words[end - 1].end()
