"""A language model that fails in a way of its own: the caller hears an apology, and the call goes on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest

from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import (
    Message,
    ModelError,
    ReplyDone,
    ToolCall,
    Tools,
)
from rejoinder.pipeline.prompt import LONG_PROMPT

SORRY = "Sorry, I cannot answer now."
LOST = "Sorry, I lost my thread."
REFUSED = "Let's talk about something else."
LINE = "The train leaves at nine, and it takes an hour."
TOOLS = Tools([{"type": "function", "function": {"name": "book"}}])


class Foreign(ScriptedLlm):
    """Fails once, with an exception that no adapter of this project raises.

    where: "count", "call" (before there is a stream), "first" or "later".
    """

    def __init__(self, where: str, error: Exception) -> None:
        super().__init__([LINE])
        self.where = where
        self.error = error

    def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Fail, or stream the line."""
        self._fail("call")
        return self._failing(super().reply(messages))

    def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        """Fail, or stream the line."""
        self._fail("call")
        return self._failing(super().reply(messages))

    def count(self, messages: Sequence[Message]) -> int:
        """Fail, or count."""
        self._fail("count")
        return super().count(messages)

    async def _failing(self, words: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
        self._fail("first")
        async for word in words:
            yield word
            if word.startswith("nine"):
                self._fail("later")

    def _fail(self, where: str) -> None:
        if where == self.where:
            self.where = ""
            raise self.error


def talk(where: str, error: Exception, tools: Tools) -> tuple[Talk, ReplyDone]:
    """Hold a call of two turns; return it and the end of the first reply. The second one must succeed."""
    conversation = Talk(
        "a " * LONG_PROMPT if where == "count" else "when",
        llm=Foreign(where, error),
        tools=tools,
        apology=SORRY,
        cut_apology=LOST,
    )
    conversation.says(0.6, at=0.5)
    conversation.says(0.6, at=8.0)
    conversation.run(16.0)
    first, second = conversation.of(ReplyDone)
    assert (second.status, second.heard) == ("completed", LINE)
    return conversation, first


@pytest.mark.parametrize("tools", [Tools(), TOOLS], ids=["reply", "answer"])
@pytest.mark.parametrize("error", [KeyError("choices"), ModelError("adapter", "no tokenizer")], ids=repr)
@pytest.mark.parametrize("where", ["count", "call", "first", "later"])
def test_failure_of_any_kind_is_excused(where: str, error: Exception, tools: Tools) -> None:
    conversation, failed = talk(where, error, tools)
    begun = where == "later"
    assert failed.status == "failed"
    assert failed.heard == (f"The train leaves {LOST}" if begun else SORRY)
    assert isinstance(failed.cause, ModelError) and failed.cause.role == "language model"
    assert ("choices" in str(failed.cause)) == isinstance(error, KeyError)
    assert conversation.said()[1] == ("assistant", failed.heard)


def test_count_that_fails_after_the_reply_costs_the_count_only() -> None:
    conversation = Talk("when", llm=Foreign("count", KeyError("choices")), apology=SORRY)
    conversation.says(0.6, at=0.5)
    conversation.run(8.0)
    (done,) = conversation.of(ReplyDone)
    assert (done.status, done.heard, done.usage) == ("completed", LINE, None)
