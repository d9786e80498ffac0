"""An agent's answer to typed words: its tools run between the language model's answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from rejoinder.agent.app.call import Call, Say
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.runs import MOST_ROUNDS
from rejoinder.agent.app.tool import result_of
from rejoinder.pipeline import ModelError, ToolCall, ToolLlm
from rejoinder.pipeline.history import History
from rejoinder.pipeline.replying.text.answer_filter import AnswerFilter, filtered


async def agent_answer(
    llm: ToolLlm, history: History, host: AgentHost, call: Call
) -> AsyncGenerator[str, None]:
    """Yield the words of the answer to the end of a history, and run the tools that the model calls.

    The calls and their results are added to the history. What a tool says precedes the next answer. Closing cancels the tools. Raises ModelError, also
    for a model that calls tools in ``MOST_ROUNDS`` answers in a row.
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
        said: list[str] = []
        call.connect(_noted(said))
        results = await asyncio.gather(*(host.run_tool(call, asked) for asked in added))
        for words in said:
            yield f"{words} "
        for asked, result in zip(added, results, strict=True):
            history.insert(*result_of(asked.id, result.text))
    raise ModelError("language model", f"it called tools in {MOST_ROUNDS} answers in a row")


def _noted(said: list[str]) -> Say:
    async def say(words: str) -> None:
        said.append(words)

    return say
