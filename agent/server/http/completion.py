"""An answer of ``POST /v1/chat/completions`` while it is generated, and OpenAI's shapes for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rejoinder.pipeline import ToolCall, Usage
from rejoinder.pipeline.replying.text.answer_filter import MAX_TOKENS


class Answer:
    """One answer: the text and the tool calls for the client, and why the answer ended.

    most: most tokens, None for no limit. stops: sequences that end the answer and are not part of it. finish:
    OpenAI's finish reason, None while the answer goes on. pieces: number of text pieces from the model.
    """

    def __init__(self, most: int | None = None, stops: Sequence[str] = ()) -> None:
        self.text = ""
        self.calls: list[ToolCall] = []
        self.finish: str | None = None
        self._most = most
        self._stops = stops
        self.pieces = 0
        self._held = ""

    def take(self, piece: str | ToolCall) -> str:
        """Take the model's next piece; return the new text for the client.

        Text that may begin a stop sequence is held back until that is decided. A piece counts as one token,
        although some model servers send several tokens in a piece.
        """
        if isinstance(piece, ToolCall):
            self.calls.append(piece)
            return ""
        self.pieces += 1
        self._held += piece
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.finish = "stop"
            return self._give(min(found))
        if self.pieces == self._most:
            self.finish = "length"
            return self._give(len(self._held))
        return self._give(len(self._held) - max((begun(self._held, stop) for stop in self._stops), default=0))

    def end(self) -> str:
        """End the answer; return the text that was still held back."""
        if self.finish is None:
            cut = self.pieces >= MAX_TOKENS  # the limit of every model here
            self.finish = "tool_calls" if self.calls else "length" if cut else "stop"
            return self._give(len(self._held))
        return ""

    def _give(self, size: int) -> str:
        given, self._held = self._held[:size], self._held[size:]
        self.text += given
        return given


def begun(text: str, stop: str) -> int:
    """Return the length of the longest end of ``text`` that begins the stop sequence."""
    return next(
        (size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0
    )


class Shape:
    """Builds the messages about one answer. id: of the answer. created: seconds since the epoch."""

    def __init__(self, id_: str, created: int, model: str) -> None:
        self.id = id_
        self._created = created
        self._model = model

    def chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        """Return a chat.completion.chunk."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def called(self, index: int, call: ToolCall) -> dict[str, Any]:
        """Return the chunk with one complete tool call."""
        return self.chunk({"tool_calls": [{"index": index, **_call(call)}]})

    def usage(self, usage: Usage) -> dict[str, Any]:
        """Return the last chunk of a stream, with the usage."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(usage)}

    def whole(self, answer: Answer, usage: Usage | None) -> dict[str, Any]:
        """Return the chat.completion. As with OpenAI, its content is null if it has tool calls and no text.

        usage: None where no tokens are counted.
        """
        message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.calls:
            message |= {"content": answer.text or None, "tool_calls": [_call(call) for call in answer.calls]}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
        whole = {**self._head("chat.completion"), "choices": [choice]}
        return whole if usage is None else {**whole, "usage": _usage(usage)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self._created, "model": self._model}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.read,
        "completion_tokens": usage.written,
        "total_tokens": usage.read + usage.written,
        **({"prompt_tokens_details": {"cached_tokens": usage.cached}} if usage.cached else {}),
    }


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }
