"""Checks by rules whether an opening and what follows it read as one sentence.

It does not judge whether the answer is right or fits the question, nor how the voice joins both.
"""

from __future__ import annotations

import re

from rejoinder.pipeline.words import normalise

_GREETS = frozenset("hello hi hey sure okay ok certainly absolutely greetings welcome thanks".split())
_GREETINGS = ("of course", "good morning", "good evening", "thank you", "no problem", "got it", "let me")
_BREAKS = re.compile(
    r"\b(continu\w*|my message|as i said|i was saying|broke off|the rest of)\b", re.IGNORECASE
)
_OWN_CAPITAL = re.compile(r"I\b|[A-Z]{2,}")
GREETING_PLACES = 3
"""Words behind the opening among which a second greeting is looked for."""


def join_faults(opening: str, rest: str) -> list[str]:
    """Return what is wrong with a join, in words; an empty list if no rule finds a fault.

    "nothing follows"; "greets again": a greeting or another opening within the first words; "repeats": the
    rest begins with two words in a row of the opening; "new sentence": it begins with a capital letter behind
    a comma, and neither is a word that always has one; "mark first": it begins with a punctuation mark;
    "mentions the break".
    """
    words, said = normalise(rest).split(), normalise(opening).split()
    if not words:
        return ["nothing follows"]
    begin = " ".join(words[:GREETING_PLACES])
    faults = []
    if set(words[:GREETING_PLACES]) & _GREETS or any(begin.startswith(one) for one in _GREETINGS):
        faults.append("greets again")
    if any(words[:2] == said[place : place + 2] for place in range(len(said) - 1)):
        faults.append("repeats")
    first = rest.split()[0]
    inside = [word.strip(".,!?") for word in re.findall(r"(?<=[a-z,;] )\S+", rest)]
    own = _OWN_CAPITAL.match(first) or first.strip(".,!?") in inside
    if opening.rstrip().endswith(",") and first[0].isupper() and not own:
        faults.append("new sentence")
    if not rest.lstrip()[0].isalnum() and rest.lstrip()[0] not in "\"'“‘($€£":
        faults.append("mark first")
    if _BREAKS.search(" ".join(rest.split()[:12])):
        faults.append("mentions the break")
    return faults
