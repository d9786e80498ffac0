"""Turns the conversations of a trace file into examples for tuning, without personal data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rejoinder.agent.cli.continuations import Continuation, continuation, joined
from rejoinder.agent.cli.preferences import INTERRUPTED_END, corrections, pair
from rejoinder.models.guard.personal_data import redactors
from rejoinder.pipeline import Rules

PLACEHOLDER = "[{}]"
"""What stands in place of personal data, with its kind."""


@dataclass(slots=True)
class Exported:
    """What was found in a trace file.

    calls: conversations that were exported. turns: answers in them. tool_calls: calls of tools in them.
    corrections: answers that the caller interrupted and corrected. pairs: preference pairs. redacted: places
    of personal data. without_consent: calls that were left out. unanswered: conversations without an answer.
    unreadable: lines that are no JSON object.
    """

    calls: int = 0
    turns: int = 0
    tool_calls: int = 0
    corrections: int = 0
    pairs: int = 0
    redacted: int = 0
    without_consent: int = 0
    unanswered: int = 0
    unreadable: int = 0


class Redaction:
    """Redacts personal data in messages. count: the places so far.

    kinds: as in ``redactors``. region: country of telephone numbers without a country code.
    """

    def __init__(self, kinds: Sequence[str], region: str) -> None:
        self.count = 0
        self._rules = Rules(redactors=redactors(kinds, region, PLACEHOLDER))

    def text(self, text: str) -> str:
        """Return a text without personal data."""
        finding = self._rules.check("", text)
        self.count += finding.redacted
        return finding.text

    def json(self, text: str) -> str:
        """Return a text without personal data; if it is JSON, what remains is JSON, too."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self.text(text)
        if not isinstance(value, dict | list):
            return self.text(text)
        return json.dumps(self._value(value), ensure_ascii=False)

    def _value(self, value: Any) -> Any:
        match value:
            case dict():
                return {self.text(name): self._value(one) for name, one in value.items()}
            case list():
                return [self._value(one) for one in value]
            case str():
                return self.text(value)
            case bool() | None:
                return value
        clean = self.text(str(value))  # a number, such as that of a card
        return value if clean == str(value) else clean


def examples(lines: Iterable[str | bytes], redaction: Redaction, found: Exported) -> Iterator[dict[str, Any]]:
    """Yield an example for each call with consent, in the chat format of trainers: messages and tools.

    lines: of a trace file, in which the turns of a call stand before its conversation. found: is counted up.
    """
    calls, consented = set[str](), set[str]()
    went_on: dict[str, list[Continuation]] = {}
    for line in lines:
        try:
            written = json.loads(line)
            call, kept = str(written["call"]), written.get("conversation")
        except (ValueError, KeyError, TypeError, AttributeError):
            found.unreadable += bool(line.strip())
            continue
        calls.add(call)
        if kept is None and (continued := continuation(written)):
            went_on.setdefault(call, []).append(continued)
        if kept is None or written.get("consent") is not True:
            continue
        consented.add(call)
        said = joined(kept["messages"], went_on.pop(call, []))
        messages = [_message(message, redaction) for message in said]
        if not (answers := [message for message in messages if message["role"] == "assistant"]):
            found.unanswered += 1
            continue
        found.calls, found.turns = found.calls + 1, found.turns + len(answers)
        found.tool_calls += sum(len(answer.get("tool_calls", ())) for answer in answers)
        yield {"messages": messages, "tools": kept["tools"], "model": kept["model"]}
    found.without_consent = len(calls - consented)
    found.redacted = redaction.count


def preferences(example: Mapping[str, Any], found: Exported) -> Iterator[dict[str, Any]]:
    """Yield the preference pairs of an example: prompt, chosen and rejected answer, tools and model.

    found: is counted up.
    """
    messages = example["messages"]
    for correction in corrections(messages):
        found.corrections += 1
        if made := pair(messages, correction):
            found.pairs += 1
            yield {**made, "tools": example["tools"], "model": example["model"]}


def _message(given: Mapping[str, Any], redaction: Redaction) -> dict[str, Any]:
    """Return a message without personal data. An interrupted answer gets the weight 0: it is no example."""
    message = dict(given)
    clean = redaction.json if message["role"] == "tool" else redaction.text
    message["content"] = clean(message["content"])
    if calls := message.get("tool_calls"):
        message["tool_calls"] = [_call(call, redaction) for call in calls]
    elif message["role"] == "assistant" and message["content"].endswith(INTERRUPTED_END):
        message["weight"] = 0
    return message


def _call(call: Mapping[str, Any], redaction: Redaction) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "arguments": redaction.json(function["arguments"])}}
