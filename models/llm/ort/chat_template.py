"""The chat template of the embedded language model: it renders a conversation as the tokens of a prompt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rejoinder.models.llm.chat_jinja import chat_environment
from rejoinder.models.llm.ort.decoder_graph import CONTEXT
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Message

PROMPT_TOKENS = CONTEXT - 256
"""Most tokens of a prompt. A longer conversation loses its oldest messages."""
FORGET_MESSAGES = 8
"""Messages that are dropped at a time, because each drop makes the KV cache useless once."""
TEMPLATE_TOKENS = 6
"""Approximate number of tokens that a chat template adds to a message."""


class ChatTemplate:
    """Renders prompts. Control tokens in messages are removed, so only the template delimits messages.

    name: name of the model in errors. template: the template of the GGUF file, in Jinja. Any thread may call
    ``tokens``.
    """

    def __init__(self, name: str, tokenizer: Any, template: str) -> None:
        self._name = name
        self._tokenizer = tokenizer
        self._longest = max(map(len, tokenizer.get_vocab()))
        self._template = chat_environment().from_string(template)
        control = tokenizer.get_added_tokens_decoder().values()
        self._control = re.compile("|".join(re.escape(token.content) for token in control))

    def tokens(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of a prompt. Raises ModelError if it is too long or the template refuses it."""
        last = messages[-1]["content"] if messages else ""
        if len(last) > CONTEXT * self._longest:  # too many, without counting them
            raise self._too_long(f"more than {CONTEXT}")
        try:
            said = [Message(role=each["role"], content=self._plain(each["content"])) for each in messages]
            tokens = self._rendered(said)
            if len(tokens) > PROMPT_TOKENS:
                tokens = self._rendered(self._shortened(said))
        except Exception as error:
            raise ModelError(self._name, f"cannot read the conversation: {error}") from error
        if not 0 < len(tokens) < CONTEXT:
            raise self._too_long(str(len(tokens)))
        return tokens

    def tokens_in(self, text: str) -> int:
        """Return the number of tokens in a text, without those of the template."""
        return len(self._ids(self._control.sub(" ", text)))

    def _rendered(self, messages: Sequence[Message]) -> list[int]:
        return self._ids(self._template.render(messages=messages, add_generation_prompt=True))

    def _ids(self, text: str) -> list[int]:
        """Return the tokens of a text. Only the tokenizer's methods for batches release the GIL."""
        (encoded,) = self._tokenizer.encode_batch_fast([text])
        tokens: list[int] = encoded.ids
        return tokens

    def _plain(self, text: str) -> str:
        """Return a message's text without control tokens, which could begin another message."""
        text.encode()  # raises for a lone surrogate
        return self._control.sub(" ", text)

    def _shortened(self, messages: Sequence[Message]) -> list[Message]:
        """Drop the oldest messages of a conversation that is too long, but keep its system message."""
        sizes = [len(self._ids(each["content"])) + TEMPLATE_TOKENS for each in messages]
        lead = 1 if messages and messages[0]["role"] == "system" else 0
        first = lead
        while sum(sizes[:lead] + sizes[first:]) > PROMPT_TOKENS and first + FORGET_MESSAGES < len(messages):
            first += FORGET_MESSAGES
        return [*messages[:lead], *messages[first:]]

    def _too_long(self, tokens: str) -> ModelError:
        return ModelError(
            self._name,
            f"a prompt of {tokens} tokens exceeds the context of {CONTEXT}: "
            "shorten the instructions, or take a model with more (llama:, openai:)",
            "context_length_exceeded",
        )
