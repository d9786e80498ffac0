"""Prompts for models in vLLM, rendered with the chat template of their tokenizer."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from rejoinder.pipeline.interfaces import NO_TOOLS, Message, Tools

TEMPLATE = {"enable_thinking": False}
"""Parameters of chat templates: no reasoning text, which adds latency. Most templates ignore them."""


class Prompts:
    """Renders prompts. Control tokens in messages are removed, so only the template delimits messages."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        control = [re.escape(token) for token in tokenizer.get_added_vocab()]
        self._control = re.compile("|".join(control) or "(?!)")

    def tokens(self, messages: Sequence[Message], tools: Tools = NO_TOOLS) -> list[int]:
        """Return the tokens of a prompt. Raises any error that the template raises."""
        tokens: list[int] = self._tokenizer.apply_chat_template(
            [self._plain(message) for message in messages],
            tools=self._clean(list(tools.functions)) or None,
            add_generation_prompt=True,
            return_dict=False,
            **TEMPLATE,
        )
        return tokens

    def _plain(self, message: Message) -> dict[str, Any]:
        plain: dict[str, Any] = {**message, "content": self._clean(message["content"])}
        if "tool_calls" in message:
            plain["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": self._arguments(call["function"])}}
                for call in message["tool_calls"]
            ]
        return plain

    def _arguments(self, function: dict[str, str]) -> Any:
        """Return the arguments of a call as an object, as templates expect; {} if they are not one."""
        try:
            given = json.loads(function["arguments"])
        except ValueError:  # a client may add an invalid call to a conversation, which must go on
            given = None
        return self._clean(given) if isinstance(given, dict) else {}

    def _clean(self, value: Any) -> Any:
        """Return a JSON value without control tokens, which could begin another message."""
        if isinstance(value, str):
            value.encode()  # raises for a lone surrogate
            return self._control.sub(" ", value)
        if isinstance(value, dict):
            return {self._clean(key): self._clean(one) for key, one in value.items()}
        return [self._clean(one) for one in value] if isinstance(value, list) else value
