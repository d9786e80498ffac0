"""Cut a stream of text into pieces that a voice can start on."""

from __future__ import annotations

import re

FIRST_WORDS, LEAST_WORDS = 3, 2
"""A first clause without any punctuation is cut after this many words, so that something is heard early, and
after fewer where the last ones lean on what follows."""
LATER_CHARACTERS = 60
"""From this length on, a comma is enough to end a clause; shorter ones wait for the end of the sentence."""
MAX_CHARACTERS = 160
"""No clause is longer: an interrupted voice finishes the clause it is working on before it takes another."""

_SENTENCE = re.compile(r"[.!?…]+[\"')\]*]*\s")
_WORD = re.compile(r"(\S+)\s")
_PHRASE = re.compile(r"[,;:—–][\"')\]*]*\s|\s[—–-]\s|\n")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:mr|mrs|ms|dr|prof|sr|jr|st|vs|etc|no|vol|fig|approx|e\.g|i\.e|a\.m|p\.m|[a-z]|\d+)\.\s$",
    re.IGNORECASE,
)

_LEANING = frozenset(
    "a an the of to in on at by for from with and or but so as if that which who my your our their its his "
    "her is are was were be been not very more most this these those can could will would should about "
    "into over after before than because".split()
)
"""Words that a voice runs into the next one: a pause after them sounds wrong."""


class ClauseSplitter:
    """Collect text and give back clauses: the first one short, the later ones whole sentences.

    Between two calls it holds no more than ``MAX_CHARACTERS``.
    """

    def __init__(self) -> None:
        self._text = ""
        self._first = True

    def feed(self, text: str) -> list[str]:
        """Add text and return the clauses it completes, with their surrounding blanks removed."""
        clauses = []
        # A piece at a time: cutting each clause off the whole of a long text takes time with its square.
        for begin in range(0, len(text), MAX_CHARACTERS):
            self._text = (self._text + text[begin : begin + MAX_CHARACTERS]).lstrip()
            while (end := self._end()) is not None:
                clauses.append(self._text[:end].strip())
                self._text = self._text[end:].lstrip()
                self._first = False
        return clauses

    def flush(self) -> str:
        """Return what is left, which may be empty."""
        clause, self._text = self._text.strip(), ""
        return clause

    def _end(self) -> int | None:
        """Return the end of the next clause, found in the shortest text that shows it.

        What was looked at beyond that would make the clauses depend on the pieces the text came in.
        """
        text = self._text[: MAX_CHARACTERS + 1]
        least = 4 if self._first else LATER_CHARACTERS
        ends = [m.end() for m in _SENTENCE.finditer(text) if not _ABBREVIATION.search(text[: m.end()])]
        ends += [m.end() for m in _PHRASE.finditer(text) if m.end() >= least]
        words = list(_WORD.finditer(text)) if self._first else []
        if len(words) >= FIRST_WORDS and words[FIRST_WORDS - 1].end() < min(ends, default=len(text) + 1):
            return _after_words(words[:FIRST_WORDS])
        if ends:
            return min(ends)
        if len(text) > MAX_CHARACTERS:
            return text.rfind(" ", 1, MAX_CHARACTERS) + 1 or MAX_CHARACTERS
        return None


def _after_words(words: list[re.Match[str]]) -> int:
    """Return the end of the words, without those at the end that lean on what follows."""
    end = len(words)
    while end > LEAST_WORDS and words[end - 1][1].lower() in _LEANING:
        end -= 1
    return words[end - 1].end()
