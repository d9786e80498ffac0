"""The language model's part of a reply: its prompt, its tool calls and the tokens it uses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from rejoinder.pipeline.context.retrieval import Lookup
from rejoinder.pipeline.context.tokens import ENTRY_TOKENS, estimated
from rejoinder.pipeline.errors import ProtocolError, asking
from rejoinder.pipeline.interfaces import Llm, Message, TokenLlm, ToolCall, Usage
from rejoinder.pipeline.prompt import is_long, with_context
from rejoinder.pipeline.replying.text.answer_filter import AnswerFilter


class Generation:
    """One request to the language model, and what it returns.

    messages: the prompt; empty if the reply's words are given.
    waits: whether the prompt comes later, with ``take_prompt``.
    filter: filters and limits the model's answer, to ``max_tokens`` tokens.
    ends_early: whether the answer may end with a sentence once it has ``EARLY_END_TOKENS``, to save time
        under load.
    refused: an error that prevents the request; ``begin`` raises it.
    lookup: retrieves knowledge for the prompt, None for none.
    """

    def __init__(
        self,
        messages: Sequence[Message] = (),
        max_tokens: int = 0,
        ends_early: bool = False,
        refused: ProtocolError | None = None,
        lookup: Lookup | None = None,
        waits: bool = False,
    ) -> None:
        self.waits = waits
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
        self._prompted = asyncio.Event()

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

    def take_prompt(
        self, messages: Sequence[Message], refused: ProtocolError | None, lookup: Lookup | None
    ) -> None:
        """Take the prompt of a request that waits for it, and begin it; with an error, let it fail."""
        self.messages, self._refused, self.lookup, self.waits = messages, refused, lookup, False
        self._prompted.set()

    async def wait_prompt(self) -> None:
        """Wait for ``take_prompt``. Cancelling changes nothing."""
        await self._prompted.wait()

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

    def add_call(self, call: ToolCall) -> None:
        """Record a tool call of the model."""
        self._calls.append(call)

    async def add_context(self, seconds: float) -> bool:
        """Wait for the knowledge and add it to the prompt; return whether it came within ``seconds``.

        Cancelling leaves the prompt as it is.
        """
        if self.lookup is None:
            return True
        self.messages = with_context(self.messages, await self.lookup.wait(seconds))
        return self.lookup.work.done

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
            with suppress(Exception):  # the reply has ended: only its report lacks the count
                self._prompt_tokens = llm.count(self.messages)
        return None if self._prompt_tokens is None else Usage(self._prompt_tokens, self.tokens)

    def estimate(self) -> int:
        """Return about how many tokens were used so far, tools aside; 0 before the request begins."""
        if not self._begun:
            return 0
        return sum(estimated(one["content"]) + ENTRY_TOKENS for one in self.messages) + self.tokens
