"""Condenses a conversation without a model: it keeps the lines with names, numbers and decisions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rejoinder.pipeline.context.tokens import Counter, estimated
from rejoinder.pipeline.words import FUNCTION_WORDS, normalise

DECISIONS = re.compile(
    r"\b(agree|agreed|book|booked|booking|cancel|cancelled|change|changed|choose|chosen|confirm|confirmed|"
    r"decide|decided|deal|deliver|delivered|instead|name|named|need|order|ordered|prefer|promise|"
    r"promised|remember|settled|want|will)\b",
    re.IGNORECASE,
)
"""Words of lines in which something is decided or introduced."""
NUMBER = re.compile(r"\d[\d.,:/-]*\d|\d")
"""A number, a date or a time in digits."""
NUMBER_WORDS = frozenset(
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million half "
    "monday tuesday wednesday thursday friday saturday sunday january february march april june july august "
    "september october november december today tomorrow noon midnight".split()
)
"""Numbers, days and months in words: recognisers often write them so, without capitals."""
FILLER_WORDS = frozenset(
    "um uh er ah oh hm well so please just really actually basically okay ok yes yeah yep no right fine "
    "great thanks thank you hello hi sorry".split()
)
"""Words that may be left out at the start of a line."""
FACT_WEIGHT = 3.0
"""Weight of a fact that no chosen line has."""
DECISION_WEIGHT = 6.0
"""Weight of a decision that no chosen line has: as much as two facts."""
EARLIER_WEIGHT = 4.0
"""Weight of a line of the summary before, if a fact or a decision in it is new."""
MOST_WORDS = 20
"""Most words of a line. Recognisers may write a whole turn without a full stop."""
CONJUNCTIONS = frozenset("and but because so or then which".split())
"""Words at which a long sentence is divided."""
LINE_TOKENS = 8
"""Added to the length of each line, so that a line is not chosen for being short."""
EARLIER = "Earlier: "
"""Begins a line of the summary before."""
SPEAKER = re.compile(r"^(Caller|Agent|Tool|Note): ")
"""The speaker at the start of a line."""
SENTENCE = re.compile(r"(?<=[.!?])\s+")
"""What separates two sentences."""


def facts(line: str) -> set[str]:
    """Return the numbers, names and days in a line, in lower case.

    A name is a word in capitals that does not begin a sentence.
    """
    found = set(NUMBER.findall(line))
    words = re.findall(r"[^\W\d_][\w'-]*", SPEAKER.sub("", line))
    found |= {word.lower() for word in words if word.lower() in NUMBER_WORDS}
    body = SPEAKER.sub("", line)
    for match in re.finditer(r"(?<![.!?:]\s)(?<!^)\b[A-Z][\w'-]+", body):
        word = match.group().lower()
        if word not in FUNCTION_WORDS and not word.startswith("i'"):
            found.add(word)
    return found


def decided(line: str) -> set[str]:
    """Return the words of a decision in a line, in lower case; none for a line without a decision."""
    if line.endswith("?") or not DECISIONS.search(line):
        return set()
    return {word for word in normalise(SPEAKER.sub("", line)).split() if word not in FUNCTION_WORDS}


def condense(text: str, tokens: int, count: Counter = estimated) -> str:
    """Return the lines that say most, in their order, of at most this number of tokens.

    text: one line per turn, such as ``Caller: My name is Ada.``; the lines of an earlier summary begin with
    ``EARLIER`` and weigh more. A line is chosen for the facts that no chosen line has, per token.
    """
    lines = [line for one in text.splitlines() for line in _lines(one, count)]
    chosen: set[int] = set()
    covered: set[str] = set()
    left = tokens
    while True:
        worth = {
            place: line.worth(covered)
            for place, line in enumerate(lines)
            if place not in chosen and line.tokens <= left
        }
        best = max(worth, key=lambda place: worth[place], default=None)
        if best is None or worth[best] <= 0.0:
            return "\n".join(lines[place].text for place in sorted(chosen))
        chosen.add(best)
        covered |= lines[best].facts | lines[best].decided
        left -= lines[best].tokens


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence of a conversation.

    facts: see there. decided: the words of a decision. weight: what the line is worth besides its facts, if a
    fact or a word of a decision is new.
    """

    text: str
    facts: set[str]
    decided: set[str]
    weight: float
    tokens: int

    def worth(self, covered: set[str]) -> float:
        """Return what the line adds per token. covered: the facts that are known."""
        news = len(self.facts - covered)
        weight = self.weight if news or self.decided - covered else 0.0
        return (FACT_WEIGHT * news + weight) / (LINE_TOKENS + self.tokens)


def _clauses(text: str) -> Iterator[list[str]]:
    """Yield the words of each sentence; a long one comes in parts, if possible from conjunction on."""
    for sentence in SENTENCE.split(text.strip()):
        part: list[str] = []
        for word in sentence.split():
            if len(part) == MOST_WORDS or (len(part) >= MOST_WORDS // 2 and word.lower() in CONJUNCTIONS):
                yield part
                part = []
            part.append(word)
        yield part


def _lines(line: str, count: Counter) -> list[Line]:
    """Return the sentences of a line, each with its speaker and without fillers at its start."""
    earlier = line.startswith(EARLIER)
    line = line.removeprefix(EARLIER)
    speaker = match.group() if (match := SPEAKER.match(line)) else ""
    lines = []
    for words in _clauses(line[len(speaker) :]):
        while words and re.sub(r"\W", "", words[0].lower()) in FILLER_WORDS:
            words = words[1:]
        if not words:
            continue
        text = speaker + " ".join(words)
        words_of_decision = decided(text)
        weight = DECISION_WEIGHT * bool(words_of_decision) + EARLIER_WEIGHT * earlier
        lines.append(Line(text, facts(text), words_of_decision, weight, count(text) + 1))
    return lines
