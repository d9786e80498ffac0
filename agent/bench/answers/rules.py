"""Judges an answer by rules that a reader can check: words that it has to contain, words that it must not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from rejoinder.agent.bench.answers.questions import UNKNOWN, Question

Normalise = Callable[[str], str]
"""Returns a text in lower case without punctuation, numbers as digits: Whisper's English normaliser."""

ADMISSIONS = (
    r"i (really |just |actually )?(do|can|could|would|am|have|did) not",
    r"i (cannot|have no)",
    r"(not |un)able to",
    r"no (way|access|information|record|idea|memory)",
    r"(not|never) (been )?(told|mentioned|said|given|shared|specified|provided)",
    r"(can|could|would) you (please )?(tell|provide|share|give|check|clarify|specify)",
    r"please (tell|provide|share|give|check|clarify|specify)",
    r"(do you mean|are you (referring|talking|asking))",
    r"you (would|will|should|need|have) (to |need to )?(check|look|ask)",
    r"only you",
)
"""Patterns of which one is in an answer that says what the agent does not know, or asks for it."""
CLAIM = re.compile(r"\bas an? (ai|artificial|language)\b|language model")
"""What a model says of itself that a caller did not ask about."""
MARKDOWN_MARKS = re.compile(r"[*#`_|\[\]<>{}•]|^\s*-\s|(^|\n)\s*\d+[.)]\s.*\n\s*\d+[.)]\s", re.MULTILINE)
"""Marks of Markdown and code, which cannot be spoken. One number is no list."""
PART = re.compile(r"[.,;:!?]+(\s+|$)")
"""What divides the parts of an answer: the normaliser would join the numbers of "two, one in front"."""
QUOTE = re.compile(r"(?<!\w)['’]|['’](?!\w)")
"""A quotation mark that is no apostrophe: the normaliser takes "'t'" for "not"."""
SENTENCE = re.compile(r"[.!?]+(\s|$)")
"""The end of a sentence, well enough for a count."""


def is_right(question: Question, answer: str, normalise: Normalise) -> bool:
    """Return whether an answer fulfils the rules of its question. An answer without words does not."""
    said = " ".join(filter(None, map(normalise, PART.sub("\n", QUOTE.sub("", answer)).splitlines())))
    if not said or _count(question.wrong, said, normalise):
        return False
    if question.kind == UNKNOWN:
        return any(re.search(rf"\b{pattern}\b", said) for pattern in ADMISSIONS)
    return _count(question.right, said, normalise) >= question.least


def is_spoken(answer: str) -> bool:
    """Return whether an answer can be read aloud as it is: no Markdown, no remark about being a model.

    An answer without words cannot.
    """
    return bool(answer.strip()) and not MARKDOWN_MARKS.search(answer) and not CLAIM.search(answer.lower())


def sentences(answer: str) -> int:
    """Return the number of sentences in an answer; an unfinished one at the end counts."""
    return len([part for part in SENTENCE.split(answer) if part and part.strip()])


def _count(phrases: Iterable[str], said: str, normalise: Normalise) -> int:
    """Return how many of the phrases a normalised text contains, as whole words."""
    return sum(bool(re.search(rf"(?<!\w){re.escape(normalise(phrase))}(?!\w)", said)) for phrase in phrases)
