"""Prompts of the embedded language model: its chat template and its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rejoinder.models.llm.ort.decoder_graph import CONTEXT
from rejoinder.models.llm.plain import PlainMessages
from rejoinder.models.llm.sample_call import CALLED, LIKE_HERMES, TOOL
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import NO_TOOLS, Message, Tools

PROMPT_TOKENS = CONTEXT - 256
"""Most tokens of a prompt. A longer conversation loses its oldest messages."""
FORGET_MESSAGES = 8
"""Messages that are dropped at a time, because each drop makes the KV cache useless once."""
TEMPLATE_TOKENS = 6
"""Approximate number of tokens that a chat template adds to a message."""
CALL_TAGS = ("<tool_call>", "</tool_call>")
"""Tokens that do not end an answer with tools."""
CALL_MARKS = ("{", "```", "<tool_call>")
"""What tokens that may begin a call contain."""

CODE_MARKS = ("{", "`", "<")
"""Marks of code, which an answer in words does without. A small model reads a tool's result out as code."""


class OrtPrompts:
    """Renders and encodes prompts.

    folder: the converted model. name: name of the model in errors.
    ends: the tokens that end an answer in words. ends_of_turn: those that end an answer with tool calls.
    call_marks: the tokens that may begin a call, int64 [tokens]. unspoken: those with marks of code.
    """

    def __init__(self, folder: Path, name: str) -> None:
        import jinja2.sandbox
        from tokenizers import Tokenizer

        self.name, self.folder = name, folder
        settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        self.tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        vocabulary = self.tokenizer.get_vocab()
        self._longest = max(map(len, vocabulary))
        marks = [token for word, token in vocabulary.items() if any(mark in word for mark in CALL_MARKS)]
        self.call_marks = np.array(sorted(marks), np.int64)
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        environment.filters["tojson"] = _json  # Jinja's own filter sorts the keys, and escapes for HTML
        self._template = environment.from_string(settings["template"])
        control = self.tokenizer.get_added_tokens_decoder()
        self._plain = PlainMessages(token.content for token in control.values())
        self.ends: set[int] = {settings["end"], *control}
        self.ends_of_turn = self.ends - {self.tokenizer.token_to_id(tag) for tag in CALL_TAGS}
        written = {token for word, token in vocabulary.items() if any(mark in word for mark in CODE_MARKS)}
        self.unspoken = np.array(sorted(written - self.ends_of_turn), np.int64)

    def knows_tools(self) -> bool:
        """Return whether the chat template renders tools, and calls as JSON."""
        try:
            text = self._render([self._plain.message(one) for one in CALLED], Tools([TOOL]))
        except Exception:  # templates raise any kind of error
            return False
        return TOOL["function"]["description"] in text and bool(LIKE_HERMES.search(text))

    def tokens(self, messages: Sequence[Message], tools: Tools = NO_TOOLS) -> list[int]:
        """Return the tokens of a prompt. A conversation that is too long loses its oldest messages.

        An answer at its end, without calls, is left open: the model goes on with it.

        Raises ModelError if it is still too long, or cannot be rendered.
        """
        if len(messages[-1]["content"]) > CONTEXT * self._longest:  # too many, without counting them
            raise self._too_long(f"more than {CONTEXT}")
        try:
            said = [self._plain.message(each) for each in messages]
            tokens = self._encode(said, tools)
            if len(tokens) > PROMPT_TOKENS:
                tokens = self._encode(self._shortened(said, tools), tools)
        except Exception as error:
            raise ModelError(self.name, f"cannot read the conversation: {error}") from error
        if not 0 < len(tokens) < CONTEXT:
            raise self._too_long(str(len(tokens)))
        return tokens

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text. Only the tokenizer's methods for batches release the GIL."""
        (encoded,) = self.tokenizer.encode_batch_fast([text])
        tokens: list[int] = encoded.ids
        return tokens

    def _encode(self, messages: Sequence[dict[str, Any]], tools: Tools) -> list[int]:
        return self.ids(self._render(messages, tools))

    def _render(self, messages: Sequence[dict[str, Any]], tools: Tools) -> str:
        functions = self._plain.clean(list(tools.functions)) or None
        given = ""
        if len(messages) > 1 and messages[-1]["role"] == "assistant" and not messages[-1].get("tool_calls"):
            *messages, last = messages
            given = last["content"]
        prompt = self._template.render(messages=messages, tools=functions, add_generation_prompt=True)
        return f"{prompt}{given}"

    def _too_long(self, tokens: str) -> ModelError:
        return ModelError(
            self.name,
            f"a prompt of {tokens} tokens exceeds the context of {CONTEXT}: "
            "shorten the instructions or the tools, or take a model with more (llama:, openai:)",
            "context_length_exceeded",
        )

    def _shortened(self, messages: Sequence[dict[str, Any]], tools: Tools) -> list[dict[str, Any]]:
        """Drop the oldest messages of a conversation that is too long, but keep its system message.

        The result of a dropped call is dropped too. The call that the last messages answer is kept.
        """
        sizes = [len(self.ids(_text(each))) + TEMPLATE_TOKENS for each in messages]
        lead = 1 if messages and messages[0]["role"] == "system" else 0
        first, room = lead, PROMPT_TOKENS - self._size(tools)
        while sum(sizes[:lead] + sizes[first:]) > room and first + FORGET_MESSAGES < len(messages):
            first += FORGET_MESSAGES
        first = max(lead, min(first, _answered(messages)))
        dropped = {call["id"] for each in messages[lead:first] for call in each.get("tool_calls", ())}
        kept = [each for each in messages[first:] if each.get("tool_call_id") not in dropped]
        return [*messages[:lead], *kept]

    def _size(self, tools: Tools) -> int:
        """Return the number of tokens that tools add to a prompt."""
        if not tools.functions:
            return 0
        short = [{"role": "system", "content": ""}, {"role": "user", "content": ""}]
        return len(self._encode(short, tools)) - len(self._encode(short, NO_TOOLS))


def _answered(messages: Sequence[dict[str, Any]]) -> int:
    """Return the index of the first call that the tool results at the end answer; else the length."""
    last = len(messages)
    while last and messages[last - 1]["role"] == "tool":
        last -= 1
    results = {each.get("tool_call_id") for each in messages[last:]}
    for at, message in enumerate(messages):
        if any(call["id"] in results for call in message.get("tool_calls", ())):
            return at
    return len(messages)


def _text(message: dict[str, Any]) -> str:
    return f"{message['content']} {_json(message.get('tool_calls', ''))}"


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(reason: str) -> None:
    raise ValueError(reason)  # chat templates call this to reject messages
