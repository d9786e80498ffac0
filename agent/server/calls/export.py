"""Calls as lines of JSON: whole, or turn by turn as in the trace file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from rejoinder.agent.server.calls.record import utc

TURN_FIELDS = ("turn", "marks", "budget", "counts", "models")
"""What a line of the trace file has of the trace of a reply."""


def whole_calls(bodies: Iterable[str]) -> Iterator[str]:
    """Yield a line for each call. bodies: calls as JSON."""
    for body in bodies:
        yield f"{body}\n"


def trace_lines(bodies: Iterable[str]) -> Iterator[str]:
    """Yield the lines that the trace file has of the turns of calls. bodies: calls as JSON."""
    for body in bodies:
        call = json.loads(body)
        for turn in call["turns"]:
            if turn["marks"] and turn["status"]:
                yield json.dumps(_line(call, turn), ensure_ascii=False) + "\n"


def _line(call: dict[str, Any], turn: dict[str, Any]) -> dict[str, Any]:
    line = {name: turn[name] for name in TURN_FIELDS if turn.get(name)}
    line |= {"call": call["call"], "at": utc(call["began"] + turn["at"]), "status": turn["status"]}
    return line | {"said": turn["said"], "heard": turn["heard"]}
