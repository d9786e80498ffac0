"""An agent's answer to typed words: its tools run between the language model's answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from rejoinder.agent.app.call import Call
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.runs import MOST_ROUNDS
from rejoinder.agent.app.tool import ToolError, result_of
from rejoinder.pipeline import Message, ModelError, ToolCall, ToolLlm
from rejoinder.pipeline.history import History
from rejoinder.pipeline.replying.text.answer_filter import AnswerFilter, filtered


class TextLine:
    """The ``Line`` of a conversation in text. said: what tools have said."""

    def __init__(self, history: History) -> None:
        self.said: list[str] = []
        self._history = history

    async def say(self, words: str) -> None:
        """Add words to the answer. It never waits, so there is nothing to cancel."""
        self.said.append(words)

    async def hang_up(self, say: str, reason: str) -> None:
        """Raise ToolError: there is no call. It never waits, so there is nothing to cancel."""
        raise ToolError("This conversation is in text: it cannot be hung up.")

    def transcript(self) -> Sequence[Message]:
        """Return the conversation, in OpenAI's chat format."""
        return self._history.transcript()

    def configured(self) -> None:
        """Do nothing: the next request has new options."""


async def agent_answer(
    llm: ToolLlm, history: History, host: AgentHost, call: Call
) -> AsyncGenerator[str, None]:
    """Yield the words of the answer to the end of a history, and run the tools that the model calls.

    The calls and their results are added to the history. What a tool says precedes the next answer. Closing
    cancels the tools. Raises ModelError, also for a model that calls tools in ``MOST_ROUNDS`` answers in a
    row.
    """
    for _ in range(MOST_ROUNDS):
        words: list[str] = []
        calls: list[ToolCall] = []
        pieces = filtered(llm.answer(history.messages(), host.tools), AnswerFilter())
        async with aclosing(pieces) as answer:
            async for piece in answer:
                if isinstance(piece, ToolCall):
                    calls.append(piece)
                else:
                    words.append(piece)
                    yield piece
        if not calls:
            return
        history.add("assistant", "".join(words))
        added = [history.add_call(asked) for asked in calls]
        line = TextLine(history)
        call.connect(line)
        results = await asyncio.gather(*(host.run_tool(call, asked) for asked in added))
        for said in line.said:
            yield f"{said} "
        for asked, result in zip(added, results, strict=True):
            history.insert(*result_of(asked.id, result.text))
    raise ModelError("language model", f"it called tools in {MOST_ROUNDS} answers in a row")
