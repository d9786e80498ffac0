"""Finds corrections in conversations, and the preference pairs that they make.

A caller who interrupts an answer and says the request again, or says that it was another one, prefers the
answer that follows. A pair has one prompt, to which both answers belong: the request as it was said again, or
both requests if the second corrects the first. The format is that of TRL's preference data
(huggingface.co/docs/trl/dataset_formats, conversational, with an explicit prompt).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

INTERRUPTED_END = "—"
"""The end of a reply that the caller interrupted."""
SAID_AGAIN = 0.6
"""Least likeness of two requests, 0 to 1, for the second to be the first said again."""
LEAST_REPEATED_WORDS = 3
"""Fewest words of a request that can be said again, and of an answer that can be rejected."""
CORRECTING = re.compile(
    r"(no|nope|wait|sorry|actually|not (that|this|what)|that'?s (not|wrong)|that is (not|wrong)|wrong|"
    r"i (said|meant|mean|asked))\b",
    re.IGNORECASE,
)
"""How a correction begins. Only English is known; a request said again is found in any language."""

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Correction:
    """An interrupted answer after which the caller corrected it.

    at: index of the interrupted answer in the conversation. request: what the caller wanted, in one message.
    """

    at: int
    request: str


def corrections(messages: Messages) -> Iterator[Correction]:
    """Yield the interrupted answers whose next message corrects the request before them."""
    for at in range(1, len(messages) - 1):
        before, answer, after = messages[at - 1 : at + 2]
        if [one["role"] for one in (before, answer, after)] != ["user", "assistant", "user"]:
            continue
        if answer.get("tool_calls") or not answer["content"].endswith(INTERRUPTED_END):
            continue
        first, second = before["content"].strip(), after["content"].strip()
        if said_again(first, second):
            yield Correction(at, second)
        elif CORRECTING.match(second):
            yield Correction(at, f"{first} {second}")


def said_again(first: str, second: str) -> bool:
    """Return whether two requests have mostly the same words in the same order."""
    before: list[str] = re.findall(r"\w+", first.casefold())
    after: list[str] = re.findall(r"\w+", second.casefold())
    if min(len(before), len(after)) < LEAST_REPEATED_WORDS:
        return False
    return SequenceMatcher(a=before, b=after, autojunk=False).ratio() >= SAID_AGAIN


def pair(messages: Messages, correction: Correction) -> dict[str, Any] | None:
    """Return prompt, chosen and rejected answer; None if no whole answer follows the correction.

    Both answers are lists of one message. The rejected one has the words that the caller heard.
    """
    rejected = messages[correction.at]["content"].removesuffix(INTERRUPTED_END).rstrip()
    chosen = next((one for one in messages[correction.at + 2 :] if one["role"] != "system"), None)
    if chosen is None or chosen["role"] != "assistant" or len(rejected.split()) < LEAST_REPEATED_WORDS:
        return None
    if not chosen.get("tool_calls") and chosen["content"].endswith(INTERRUPTED_END):
        return None
    before = [{name: value for name, value in one.items() if name != "weight"} for one in messages]
    return {
        "prompt": [*before[: correction.at - 1], {"role": "user", "content": correction.request}],
        "chosen": [dict(chosen)],
        "rejected": [{"role": "assistant", "content": rejected}],
    }
