"""Judges an answer by rules that a reader can check: words that it has to contain, words that it must not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from rejoinder.agent.bench.answers.questions import UNKNOWN, Question

Normalise = Callable[[str], str]
"""Returns a text in lower case without punctuation, numbers as digits: Whisper's English normaliser."""

ADMISSIONS = (
    r"i (really |just |actually )?(do not|can not|cannot|could not|am not|am unable|have no|did not|was not)",
    r"(not|un)able to",
    r"no (way|access|information|record|idea|memory)",
    r"(not|never) (told|mentioned|said|given|shared|specified|provided)",
    r"(can|could|would) you (please )?(tell|provide|share|give|check|let)",
    r"please (tell|provide|share|give|check|let)",
    r"you (would|will|should|need|have) (to |need to )?(check|look|ask)",
    r"only you",
)
"""Patterns of which one is in an answer that says what the agent does not know, or asks for it."""
CLAIM = re.compile(r"as an? (ai|artificial|language)|language model")
"""What a model says of itself that a caller did not ask about."""
MARKS = re.compile(r"[*#`_|\[\]<>{}]|^\s*(-|\d+\.)\s", re.MULTILINE)
"""Marks of Markdown and code, which cannot be spoken."""
SENTENCE = re.compile(r"[.!?]+(\s|$)")
"""The end of a sentence, well enough for a count."""


def is_right(question: Question, answer: str, normalise: Normalise) -> bool:
    """Return whether an answer fulfils the rules of its question. An answer without words does not."""
    said = normalise(answer)
    if not said or _has_one(question.wrong, said, normalise):
        return False
    if question.kind == UNKNOWN and not question.right:
        return any(re.search(rf"\b{pattern}\b", said) for pattern in ADMISSIONS)
    if not all(_has_one((phrase,), said, normalise) for phrase in question.every):
        return False
    return not question.right or _has_one(question.right, said, normalise)


def is_spoken(answer: str) -> bool:
    """Return whether an answer can be read aloud as it is: no Markdown, no remark about being a model."""
    return not MARKS.search(answer) and not CLAIM.search(answer.lower())


def sentences(answer: str) -> int:
    """Return the number of sentences in an answer; an unfinished one at the end counts."""
    return len([part for part in SENTENCE.split(answer) if part and part.strip()])


def _has_one(phrases: Iterable[str], said: str, normalise: Normalise) -> bool:
    """Return whether a normalised text contains one of the phrases, as whole words."""
    return any(re.search(rf"(?<!\w){re.escape(normalise(phrase))}(?!\w)", said) for phrase in phrases)
