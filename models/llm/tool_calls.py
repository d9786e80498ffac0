"""Assemble tool calls from the deltas that chat servers stream."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from typing import Any

from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import ToolCall

MAX_TOOL_CALL_CHARS = 64 * 1024
"""Most characters in the names, identifiers and arguments of all calls of one answer."""
MAX_TOOL_CALLS = 64
"""Most calls of one answer."""


class ToolCalls:
    """The tool calls of one answer. ``name`` is the name of the model in errors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: list[dict[str, str]] = []
        self._at: dict[int, dict[str, str]] = {}
        self._cut = False
        self._room = MAX_TOOL_CALL_CHARS

    def add(self, pieces: Iterable[Any], finish: str | None = None) -> None:
        """Add deltas. The first delta of a call has the call's name; each has its index and some arguments.

        Some servers give all calls of an answer the same index but different identifiers; some send each call
        whole, without an index or with its arguments as an object. Raises ModelError above
        ``MAX_TOOL_CALLS`` or ``MAX_TOOL_CALL_CHARS``.
        """
        self._cut = self._cut or finish == "length"
        for piece in pieces:
            index, id_, function = (getattr(piece, field, None) for field in ("index", "id", "function"))
            name = getattr(function, "name", None)
            if index is None:  # a name begins a call
                index = len(self._calls) - (1 if self._calls and not name else 0)
            call = self._at.get(index)
            if call is None or (id_ and call["id"] and id_ != call["id"]):
                call = self._at[index] = {"id": "", "name": "", "arguments": ""}
                self._calls.append(call)
            before = _size(call)
            call["id"] = id_ or call["id"]
            call["name"] = name or call["name"]
            call["arguments"] += _text(getattr(function, "arguments", None))
            self._room -= _size(call) - before
            if self._room < 0 or len(self._calls) > MAX_TOOL_CALLS:
                most = f"the limit is {MAX_TOOL_CALLS} calls with {MAX_TOOL_CALL_CHARS} characters in all"
                raise ModelError(self._name, f"the answer has too many or too long tool calls: {most}")

    def whole(self) -> list[ToolCall]:
        """Return the calls of a finished answer, with the arguments as the model wrote them.

        They need not be JSON. OpenAI's reference tells those who run a tool to validate them: "the model does
        not always generate valid JSON". An agent's tools return such a mistake to the model, and Realtime
        clients get the arguments as they are. Raises ModelError if the limit of tokens cut a call, or if it
        names no tool.
        """
        return [self._checked(call) for call in self._calls]

    def _checked(self, call: dict[str, str]) -> ToolCall:
        if self._cut:
            reason = f"the answer reached its limit of tokens inside a call of the tool {call['name']!r}"
            raise ModelError(self._name, f"{reason}: give the tool fewer or shorter parameters")
        arguments = call["arguments"] or "{}"
        if not call["name"]:
            raise ModelError(self._name, f"the tool call ({arguments}) needs the name of a tool")
        return ToolCall(call["id"] or f"call_{secrets.token_hex(10)}", call["name"], arguments)


def _text(arguments: Any) -> str:
    """Return the arguments in a delta as text; some servers send a JSON object."""
    return arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)


def _size(call: dict[str, str]) -> int:
    return sum(map(len, call.values()))
