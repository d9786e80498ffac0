"""Joins an answer that a sound stopped and the words with which the agent went on after it.

A false interruption leaves two answers in the conversation (docs/design/bargein.md). Neither is an example:
the first one lacks its end, and the second one its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rejoinder.agent.cli.preferences import INTERRUPTED_END
from rejoinder.pipeline.words import without_blanks


class Continuation(NamedTuple):
    """The words of a turn with which the agent went on. said: the caller's backchannel, "" for a sound."""

    said: str
    heard: str


def continuation(line: Mapping[str, Any]) -> Continuation | None:
    """Return what a line of a trace file says of a continued answer; None for another turn."""
    counts, said, heard = line.get("counts"), line.get("said"), line.get("heard")
    if not isinstance(counts, dict) or not counts.get("went_on"):
        return None
    if not isinstance(said, str) or not isinstance(heard, str) or not heard.strip():
        return None
    return Continuation(said.strip(), _words(heard))


def joined(messages: Sequence[Mapping[str, Any]], went_on: Sequence[Continuation]) -> list[dict[str, Any]]:
    """Return a conversation in which each continued answer is one message, without the sound inside of it.

    went_on: the continuations of the call, in order.
    """
    made: list[dict[str, Any]] = []
    left = list(went_on)
    for given in messages:
        message = dict(given)
        for place, one in enumerate(left):
            if (
                _is_answer(message)
                and one.heard == _words(message["content"])
                and (at := _begun(made, one.said))
            ):
                begun = _words(made[-at]["content"])
                blank = "" if without_blanks(begun[-1]) and without_blanks(message["content"][0]) else " "
                message["content"] = f"{begun}{blank}{message['content']}"
                del made[-at:], left[: place + 1]
                break
        made.append(message)
    return made


def _begun(made: Sequence[Mapping[str, Any]], said: str) -> int:
    """Return how many messages from the end the answer stands that a sound stopped, 0 for none."""
    if made and _is_answer(made[-1]):
        return 1
    between = said and len(made) > 1 and made[-1]["role"] == "user" and made[-1]["content"].strip() == said
    return 2 if between and _is_answer(made[-2]) else 0


def _is_answer(message: Mapping[str, Any]) -> bool:
    spoken = message["role"] == "assistant" and not message.get("tool_calls")
    return spoken and bool(_words(message["content"]))


def _words(text: str) -> str:
    return text.strip().removesuffix(INTERRUPTED_END).rstrip()
