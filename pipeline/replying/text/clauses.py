"""Splits a stream of text into clauses, so that the voice starts before the text is complete."""

from __future__ import annotations

import re

from rejoinder.pipeline.words import FUNCTION_WORDS

MAX_FIRST_WORDS = 3
"""Most words of the first clause if it has no punctuation: a short clause is heard early."""
MIN_FIRST_WORDS = 2
"""Fewest words of such a clause, after function words at its end are moved to the next clause."""
MIN_LATER_CHARACTERS = 60
"""Least length at which a comma ends a later clause; shorter ones wait for the end of the sentence."""
MAX_CLAUSE_CHARACTERS = 160
"""Longest clause: an interrupted voice finishes its current clause before it takes another."""

_SENTENCE = re.compile(r"[.!?…]+[\"')\]*]*\s")
_WORD = re.compile(r"(\S+)\s")
_PHRASE = re.compile(r"[,;:—–][\"')\]*]*\s|\s[—–-]\s|\n")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:mr|mrs|ms|dr|prof|sr|jr|st|vs|etc|no|vol|fig|approx|e\.g|i\.e|a\.m|p\.m|[a-z]|\d+)\.\s$",
    re.IGNORECASE,
)

_RUN_ON = FUNCTION_WORDS | frozenset("most this these those over after before".split())
"""Words that a voice runs into the next one: a pause after them sounds wrong."""


class ClauseSplitter:
    """Collects text and returns clauses: a short one first, then whole sentences.

    Between two calls it holds at most ``MAX_CLAUSE_CHARACTERS``.
    """

    def __init__(self) -> None:
        self._text = ""
        self._first = True

    def feed(self, text: str) -> list[str]:
        """Add text; return the clauses it completes, without blanks at both ends."""
        clauses = []
        # One piece at a time: cutting clauses off a long text would take quadratic time.
        for begin in range(0, len(text), MAX_CLAUSE_CHARACTERS):
            self._text = (self._text + text[begin : begin + MAX_CLAUSE_CHARACTERS]).lstrip()
            while (end := self._end()) is not None:
                clauses.append(self._text[:end].strip())
                self._text = self._text[end:].lstrip()
                self._first = False
        return clauses

    def flush(self) -> str:
        """Return the rest of the text, which may be empty."""
        clause, self._text = self._text.strip(), ""
        return clause

    def cut(self) -> str:
        """Return what ``flush`` does. The text that follows begins with a short clause again."""
        self._first = True
        return self.flush()

    def _end(self) -> int | None:
        """Return the end of the next clause, None if the text does not complete one.

        It looks at no more text than needed, so that the clauses do not depend on how the text was divided.
        """
        text = self._text[: MAX_CLAUSE_CHARACTERS + 1]
        least = 4 if self._first else MIN_LATER_CHARACTERS
        ends = [m.end() for m in _SENTENCE.finditer(text) if not _ABBREVIATION.search(text[: m.end()])]
        ends += [m.end() for m in _PHRASE.finditer(text) if m.end() >= least]
        words = list(_WORD.finditer(text)) if self._first else []
        if len(words) >= MAX_FIRST_WORDS and words[MAX_FIRST_WORDS - 1].end() < min(
            ends, default=len(text) + 1
        ):
            return _after_words(words[:MAX_FIRST_WORDS])
        if ends:
            return min(ends)
        if len(text) > MAX_CLAUSE_CHARACTERS:
            return text.rfind(" ", 1, MAX_CLAUSE_CHARACTERS) + 1 or MAX_CLAUSE_CHARACTERS
        return None


def clauses_of(words: str) -> list[str]:
    """Return the clauses in which a reply with given words hands them to the voice."""
    splitter = ClauseSplitter()
    return [clause for clause in (*splitter.feed(words), splitter.flush()) if clause]


def _after_words(words: list[re.Match[str]]) -> int:
    """Return the end of the words, without the function words at their end."""
    end = len(words)
    while end > MIN_FIRST_WORDS and words[end - 1][1].lower() in _RUN_ON:
        end -= 1
    return words[end - 1].end()
