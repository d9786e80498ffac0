"""What is kept of the words of a call that is over: all, or none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rejoinder.agent.server.calls.record import CallRecord
from rejoinder.agent.settings.calls import Words

KEPT_DIGITS = 3
"""Last characters of a telephone number that are kept where words are not all kept, as in the log."""
LEFT_OUT = "…"
"""What stands in place of words that are not kept, and of the beginning of a telephone number."""


def keeper_of(words: Words) -> Callable[[CallRecord], None]:
    """Return what leaves out of a record the words that are not to be kept."""
    if words == "all":
        return lambda record: None
    return lambda record: rewrite(record, lambda text: LEFT_OUT if text else "")


def rewrite(record: CallRecord, change: Callable[[str], str]) -> None:
    """Replace the words of a record, the values in arguments and results of tools, and telephone numbers."""
    record.caller, record.called = shortened(record.caller), shortened(record.called)
    record.reason = change(record.reason) if record.error else record.reason
    for turn in record.turns:
        whole = turn.heard == turn.text
        turn.said, turn.text = change(turn.said), change(turn.text)
        turn.heard = turn.text if whole else change(turn.heard or "")
        turn.error, turn.refused = change(turn.error), change(turn.refused)
        for tool in turn.tools:
            tool.arguments, tool.result = in_json(tool.arguments, change), in_json(tool.result, change)


def in_json(text: str, change: Callable[[str], str]) -> str:
    """Return JSON with other values and the same names; a text that is no JSON object or list is changed."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return change(text)
    if not isinstance(value, dict | list):
        return change(text)
    try:
        changed = json.dumps(_changed(value, change), ensure_ascii=False)
    except RecursionError:
        return change(text)
    return changed.encode("utf-8", "replace").decode()  # an escape such as \\ud800 is half a character now


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case dict():
            return {name: _changed(one, change) for name, one in value.items()}
        case list():
            return [_changed(one, change) for one in value]
        case str():
            return change(value)
        case bool() | None:
            return value
    plain = change(str(value))  # a number, such as that of a card
    return value if plain == str(value) else plain


def shortened(number: str) -> str:
    """Return the end of a caller's number or name, as in the log."""
    return f"{LEFT_OUT}{number[-KEPT_DIGITS:]}" if len(number) > KEPT_DIGITS else number
