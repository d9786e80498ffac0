"""Tool calls: assemble them from the deltas that chat servers stream, or leave them out of an answer."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Message, ToolCall

MAX_CALL_CHARACTERS = 64 * 1024
"""Most characters in the names, identifiers and arguments of all calls of one answer."""
MAX_CALLS = 64
"""Most calls of one answer."""


class ToolCalls:
    """The tool calls of one answer. ``name`` is the name of the model in errors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: list[dict[str, str]] = []
        self._at: dict[int, dict[str, str]] = {}
        self._cut = False
        self._room = MAX_CALL_CHARACTERS

    def add(self, pieces: Iterable[Any], finish: str | None = None) -> None:
        """Add deltas. The first delta of a call has the call's name; each has its index and some arguments.

        Some servers give all calls of an answer the same index but different identifiers. Raises ModelError
        above ``MAX_CALLS`` or ``MAX_CALL_CHARACTERS``.
        """
        self._cut = self._cut or finish == "length"
        for piece in pieces:
            call = self._at.get(piece.index)
            if call is None or (piece.id and call["id"] and piece.id != call["id"]):
                call = self._at[piece.index] = {"id": "", "name": "", "arguments": ""}
                self._calls.append(call)
            before = _size(call)
            call["id"] = piece.id or call["id"]
            if piece.function is not None:
                call["name"] = piece.function.name or call["name"]
                call["arguments"] += piece.function.arguments or ""
            self._room -= _size(call) - before
            if self._room < 0 or len(self._calls) > MAX_CALLS:
                most = f"{MAX_CALLS} calls with {MAX_CALL_CHARACTERS} characters are the most"
                raise ModelError(self._name, f"it calls too much in one answer: {most}")

    def whole(self) -> list[ToolCall]:
        """Return the calls of a finished answer. Raises ModelError if a call is incomplete or invalid."""
        return [self._checked(call) for call in self._calls]

    def _checked(self, call: dict[str, str]) -> ToolCall:
        if self._cut:
            raise ModelError(self._name, f"the call of {call['name']} is longer than an answer may be")
        arguments = call["arguments"] or "{}"
        try:
            given = json.loads(arguments)
        except ValueError as error:
            raise ModelError(self._name, f"the arguments of {call['name']} are no JSON: {error}") from None
        if not call["name"] or not isinstance(given, dict):
            raise ModelError(self._name, f"this is no call of a tool: {call['name']}({arguments})")
        return ToolCall(call["id"] or new_id(), call["name"], arguments)


def new_id() -> str:
    """Return a unique identifier of a call."""
    return f"call_{secrets.token_hex(10)}"


def has_calls(messages: Sequence[Message]) -> bool:
    """Return whether there were calls in a conversation; a model may then write another one by itself."""
    return any("tool_calls" in message for message in messages)


async def without_calls(pieces: AsyncGenerator[str | ToolCall, None]) -> AsyncGenerator[str, None]:
    """Yield the words of an answer without its calls. Closing this closes ``pieces``."""
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, str):
                yield piece


def _size(call: dict[str, str]) -> int:
    return sum(map(len, call.values()))
