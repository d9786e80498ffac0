"""Prompts for models in vLLM, rendered with the chat template of their tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rejoinder.models.llm.plain import PlainMessages
from rejoinder.pipeline.interfaces import NO_TOOLS, Message, Tools

TEMPLATE = {"enable_thinking": False}
"""Parameters of chat templates: no reasoning text, which adds latency. Most templates ignore them."""


class Prompts:
    """Renders prompts. Control tokens in messages are removed, so only the template delimits messages."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._plain = PlainMessages(tokenizer.get_added_vocab())

    def tokens(self, messages: Sequence[Message], tools: Tools = NO_TOOLS) -> list[int]:
        """Return the tokens of a prompt. Raises any error that the template raises."""
        tokens: list[int] = self._tokenizer.apply_chat_template(
            [self._plain.message(message) for message in messages],
            tools=self._plain.clean(list(tools.functions)) or None,
            add_generation_prompt=True,
            return_dict=False,
            **TEMPLATE,
        )
        return tokens
