"""The rules for the agent's words: blocked phrases, patterns, redaction, alphabets and length."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rejoinder.pipeline.guarding.plain import UNSPACED, forms, plain, words_of

Redactor = Callable[[str], Iterable[tuple[int, int, str]]]
"""Finds what must not be said. It returns (start, end, replacement) for each place, in order."""

_NUMBER_END = re.compile(r"(?:[\d+(]|\b[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]{1,6}){1,7})[\s,;:()\u2010-\u2015-]*$")
"""A number, or the beginning of an IBAN, that may go on in the next clause."""
_LETTER = re.compile(r" LETTER |IDEOGRAPH|HANGUL SYLLABLE")
"""The Unicode names of letters of alphabets."""
_SENTENCE_END = re.compile(r"[.!?…。！？][\"')\]*]*\s*$")


@dataclass(frozen=True, slots=True)
class Finding:
    """What the rules say about a text. refused: the rule that refuses it, "" for none.

    text: the text with its redactions. redacted: the number of redactions.
    """

    text: str
    refused: str = ""
    redacted: int = 0


class Rules:
    """The rules of a guard. One object serves all calls.

    block: phrases that are refused. Case, width and punctuation do not matter, and only whole words count;
    in languages that are written without blanks, a phrase counts anywhere.
    patterns: regular expressions that are refused, by the name that a refusal gives. They run on the event
    loop, on at most ``LOOK_BACK`` characters before the clause and the clause itself.
    redactors: find what is replaced, such as card numbers.
    scripts: the alphabets that are allowed, by their first word in Unicode's names of letters, such as
    "latin" or "cyrillic"; empty for all.
    max_characters: most characters of one reply; 0 for no limit.

    Raises ValueError for a pattern that is not a regular expression, a phrase without a word, and an unknown
    alphabet.
    """

    def __init__(
        self,
        block: Sequence[str] = (),
        patterns: Mapping[str, str] | None = None,
        redactors: Sequence[Redactor] = (),
        scripts: Collection[str] = (),
        max_characters: int = 0,
    ) -> None:
        self.redactors = tuple(redactors)
        self.max_characters = max_characters
        self._scripts = frozenset(script.casefold() for script in scripts)
        if self._scripts and (unknown := sorted(self._scripts - _known_scripts())):
            raise ValueError(f"{unknown[0]!r} is no alphabet: write one such as latin, cyrillic or greek")
        self._phrases: dict[str, list[tuple[str, ...]]] = {}
        self._beginnings: set[tuple[str, ...]] = set()
        self._longest = 1
        self._unspaced: list[str] = []
        self._unspaced_beginnings: set[str] = set()
        for phrase in block:
            self._add(phrase)
        self._unspaced_longest = max(map(len, self._unspaced), default=0)
        self._patterns: list[tuple[str, re.Pattern[str]]] = []
        for name, pattern in (patterns or {}).items():
            try:
                self._patterns.append((name, re.compile(pattern, re.IGNORECASE)))
            except re.error as error:
                raise ValueError(f"{name}: {pattern!r} is not a regular expression: {error}") from error

    def _add(self, phrase: str) -> None:
        text, _ = plain(phrase)
        words = tuple(word for word, _ in words_of(text))
        if not words:
            raise ValueError(f"{phrase!r} has no word: it would block nothing")
        if UNSPACED.search(text):
            whole = "".join(words)
            self._unspaced.append(whole)
            self._unspaced_beginnings |= {whole[:length] for length in range(1, len(whole))}
            return
        self._phrases.setdefault(words[0], []).append(words)
        self._beginnings |= {words[:length] for length in range(1, len(words))}
        self._longest = max(self._longest, len(words))

    def may_go_on(self, text: str) -> bool:
        """Return whether the end of a text may be the beginning of a blocked phrase or of a number."""
        if self.redactors and _NUMBER_END.search(text):
            return True
        if _SENTENCE_END.search(text):
            return False
        if self._unspaced:
            end = "".join(word for word, _ in words_of(plain(text[-4 * self._unspaced_longest :])[0]))
            if any(end.endswith(beginning) for beginning in self._unspaced_beginnings):
                return True
        if not self._beginnings:
            return False
        words = [word for word, _ in words_of(plain(text[-40 * self._longest :])[0])][-self._longest :]
        return any(tuple(words[begin:]) in self._beginnings for begin in range(len(words)))

    def check(self, before: str, text: str) -> Finding:
        """Return what the rules say about a text. before: the words in front of it, which were allowed.

        A phrase or a pattern counts if it ends in ``text``.
        """
        whole, begin = before + text, len(before)
        if self._scripts and (letter := self._foreign(text)):
            return Finding("", f"script {letter}")
        if self._blocks(whole, begin):
            return Finding("", "block")
        for name, pattern in self._patterns:
            if any(found.end() > begin for found in pattern.finditer(whole)):
                return Finding("", name)
        return self._redact(whole, begin) if self.redactors else Finding(text)

    def _blocks(self, whole: str, begin: int) -> bool:
        if not self._phrases and not self._unspaced:
            return False
        text, ends = plain(whole)
        places = [(word, ends[end - 1]) for word, end in words_of(text)]
        return self._has_phrase(places, begin) or self._has_unspaced(text, ends, begin)

    def _has_phrase(self, places: Sequence[tuple[str, int]], begin: int) -> bool:
        for place, (word, _) in enumerate(places):
            for first in forms(word):
                for phrase in self._phrases.get(first, ()):
                    last = place + len(phrase)
                    rest = zip(phrase[1:], places[place + 1 : last], strict=False)
                    fits = last <= len(places) and all(want in forms(has) for want, (has, _) in rest)
                    if fits and places[last - 1][1] > begin:
                        return True
        return False

    def _has_unspaced(self, text: str, ends: Sequence[int], begin: int) -> bool:
        if not self._unspaced:
            return False
        kept = [(sign, end) for sign, end in zip(text, ends, strict=True) if sign.isalnum()]
        compact = "".join(sign for sign, _ in kept)
        for phrase in self._unspaced:
            at = compact.find(phrase)
            while at >= 0:
                if kept[at + len(phrase) - 1][1] > begin:
                    return True
                at = compact.find(phrase, at + 1)
        return False

    def _foreign(self, text: str) -> str:
        """Return the alphabet of the first letter that is not allowed, "" for none."""
        scripts = (_script(letter) for letter in text if not letter.isascii() or "latin" not in self._scripts)
        return next((script for script in scripts if script and script not in self._scripts), "")

    def _redact(self, whole: str, begin: int) -> Finding:
        found = sorted(place for redactor in self.redactors for place in redactor(whole) if place[1] > begin)
        parts, at, count = [], begin, 0
        for start, end, replacement in found:
            if start < at and count:  # inside of another one
                at = max(at, end)
                continue
            parts += [whole[at : max(at, start)], replacement]
            at, count = end, count + 1
        return Finding("".join([*parts, whole[at:]]), "", count)


@lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    """Return the alphabet of a letter, "" for any other character and for signs such as µ."""
    name = unicodedata.name(letter, "").removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ")
    return name.partition(" ")[0].casefold() if _LETTER.search(name) else ""


@lru_cache(maxsize=1)
def _known_scripts() -> frozenset[str]:
    return frozenset(_script.__wrapped__(chr(code)) for code in range(0x41, 0x20000)) - {""}
