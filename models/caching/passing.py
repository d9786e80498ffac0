"""Decides whether the answer to an English question changes with the time at which it is asked."""

from __future__ import annotations

import re

WHEN_ASKED = frozenset(
    "today tonight now tomorrow yesterday currently current latest recent recently nowadays ago weather news"
    " date week weekend month yet already still soon later earlier next until".split()
)
"""Words whose answer changes with time."""
_CLOCK = re.compile(r"\bwhat (time|day|year|month)( of the \w+)? (is it|it is)\b|\bthe time\b")


def depends_on_time(text: str) -> bool:
    """Return whether the answer changes with the time at which the question is asked."""
    plain = " ".join(re.sub(r"[^\w\s']", " ", text.lower().replace("’", "'").replace("'s ", " is ")).split())
    return bool(WHEN_ASKED & set(plain.split())) or _CLOCK.search(plain) is not None
