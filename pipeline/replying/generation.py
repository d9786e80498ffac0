"""The language model's part of a reply: its prompt, its tool calls and the tokens it uses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from rejoinder.pipeline.errors import ModelError, ProtocolError, asking
from rejoinder.pipeline.interfaces import Llm, Message, TokenLlm, ToolCall, Usage
from rejoinder.pipeline.prompt import informed, is_long
from rejoinder.pipeline.replying.retrieval import Lookup
from rejoinder.pipeline.replying.text.answer_filter import AnswerFilter


class Generation:
    """One request to the language model, and what it returns.

    messages: the prompt; empty if the reply's words are given.
    filter: filters and limits the model's answer, to ``max_tokens`` tokens.
    ends_early: whether the answer may end with a sentence once it has ``EARLY_END_TOKENS``, to save time
        under load.
    refused: an error that prevents the request; ``begin`` raises it.
    lookup: retrieves what belongs in front of the user's words; None for nothing.
    """

    def __init__(
        self,
        messages: Sequence[Message] = (),
        max_tokens: int = 0,
        ends_early: bool = False,
        refused: ProtocolError | None = None,
        lookup: Lookup | None = None,
    ) -> None:
        self.messages = messages
        self.filter = AnswerFilter(max_tokens)
        self.ends_early = ends_early
        self.lookup = lookup
        self._refused = refused
        self._calls: list[ToolCall] = []
        self._written: list[str] = []
        self._whole = False
        self._begun = False
        self._prompt_tokens: int | None = None

    @property
    def calls(self) -> Sequence[ToolCall]:
        """The model's tool calls. They run if the reply completes."""
        return self._calls

    @property
    def written(self) -> str | None:
        """All words of the reply, spoken or not; None while the language model writes."""
        return "".join(self._written) if self._whole else None

    @property
    def tokens(self) -> int:
        """The tokens that the model has streamed, thoughts included."""
        return self.filter.tokens + self.filter.hidden

    def begin(self) -> None:
        """Record that the request begins, so that its tokens count. Raises ProtocolError if it is refused."""
        if self._refused is not None:
            raise self._refused
        self._begun = True

    def write(self, words: str) -> None:
        """Record words of the reply. A reply has at most ``MAX_TOKENS`` of them."""
        self._written.append(words)

    def end(self) -> None:
        """Record that the reply has no further words."""
        self._whole = True

    def inform(self, found: str) -> None:
        """Put what was retrieved into the prompt."""
        self.messages = informed(self.messages, found)

    def add_call(self, call: ToolCall) -> None:
        """Record a tool call of the model."""
        self._calls.append(call)

    async def count_prompt(self, llm: Llm) -> None:
        """Count the tokens of a long prompt in a thread; ``usage`` counts short ones.

        Raises ModelError. Cancelling leaves them uncounted.
        """
        if isinstance(llm, TokenLlm) and is_long(self.messages):
            with asking("language model", llm):
                self._prompt_tokens = await asyncio.to_thread(llm.count, self.messages)

    def usage(self, llm: Llm) -> Usage | None:
        """Return the tokens used so far; None if the model does not count them or fails to."""
        if not self._begun or not isinstance(llm, TokenLlm):
            return None
        if self._prompt_tokens is None and not is_long(self.messages):
            with suppress(ModelError), asking("language model", llm):
                self._prompt_tokens = llm.count(self.messages)
        return None if self._prompt_tokens is None else Usage(self._prompt_tokens, self.tokens)
