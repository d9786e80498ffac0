"""One of several language models: its name, its limits, and what is known of its health."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rejoinder.models.llm.failover.breaker import Breaker
from rejoinder.models.llm.failover.continuation import GO_ON, continued, fitted, is_whole
from rejoinder.models.llm.failover.deadlines import Waits, first_clause_deadline, first_word_deadline
from rejoinder.pipeline.context.tokens import TokenBudget
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Llm, Message, TextLlm, ToolCall, ToolLlm, Tools
from rejoinder.pipeline.prompt import expects_words


@dataclass(slots=True, eq=False)
class Candidate:
    """A language model that may answer.

    name: in logs and traces. first_token_s, first_clause_s: its configured deadlines, None to derive them
    from measurements. context: its tokens for a prompt and an answer. prefills: whether it continues an
    assistant message at the end of the prompt.
    """

    name: str
    llm: Llm
    first_token_s: float | None = None
    prefills: bool = False
    first_clause_s: float | None = None
    breaker: Breaker = field(default_factory=Breaker)
    first_words: Waits = field(default_factory=Waits)
    first_clauses: Waits = field(default_factory=Waits)
    context: int = field(init=False)

    def __post_init__(self) -> None:
        self.context = TokenBudget(self.llm).context

    def deadline(self, is_last: bool) -> float:
        """Return the seconds to the first word after which another model is asked, too."""
        return first_word_deadline(self.first_token_s, self.first_words.p95(), is_last)

    def clause_deadline(self, is_last: bool) -> float:
        """Return the seconds from the first word to the first clause after which another is asked, too."""
        return first_clause_deadline(self.first_clause_s, self.first_clauses.p95(), is_last)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of one model after the other.

    tools: None for a request without tools. urgent: False for a text request, which may wait for replies.
    spoken: whether a voice needs whole clauses. needs_words: whether the user has to hear some. given: the
    words of the answer that are out already. context: tokens that the prompt was made for. go_on: asks a
    model without assistant prefill for the rest.
    """

    messages: Sequence[Message]
    tools: Tools | None = None
    urgent: bool = True
    spoken: bool = False
    needs_words: bool = False
    given: str = ""
    context: int = 0
    go_on: str = GO_ON

    @property
    def must_speak(self) -> bool:
        """Whether no words are a fault: the user waits for an answer, or for the rest of a sentence."""
        waits = not is_whole(self.given) if self.given else expects_words(self.messages)
        return self.needs_words and waits

    @property
    def hedges(self) -> bool:
        """Whether two models may work on it at a time.

        Not with tools: a server may run some of them itself, and that must happen once.
        """
        return self.tools is None

    def send(self, candidate: Candidate) -> AsyncGenerator[Any, None]:
        """Start the request at one model, and return its stream. Raises ModelError."""
        llm, messages = candidate.llm, self.messages
        if candidate.context < self.context:
            messages = fitted(messages, candidate.context, self.tools)
        if self.given:
            messages = continued(messages, self.given, candidate.prefills, self.go_on)
        if self.tools is None:
            return (
                llm.write(messages) if not self.urgent and isinstance(llm, TextLlm) else llm.reply(messages)
            )
        if isinstance(llm, ToolLlm):
            return llm.answer(messages, self.tools)
        raise ModelError(candidate.name, "it cannot call tools")


Piece = str | ToolCall
"""A piece of an answer."""
