"""Answers in text: an agent's to typed words, and a worker's to its agent. Tools run between the answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from rejoinder.agent.app.call import Call
from rejoinder.agent.app.runs import MOST_ROUNDS
from rejoinder.agent.app.tool import ToolError, result_of
from rejoinder.agent.app.tool_result import ToolResult
from rejoinder.models.llm.priority_gate import text_answer
from rejoinder.pipeline import Llm, Message, ModelError, ToolCall, ToolLlm, Tools
from rejoinder.pipeline.history import History
from rejoinder.pipeline.prompt import informed
from rejoinder.pipeline.replying.retrieval import cut
from rejoinder.pipeline.replying.text.answer_filter import AnswerFilter, filtered

if TYPE_CHECKING:
    from rejoinder.agent.app.host import AgentHost

log = logging.getLogger(__name__)

CONTEXT_S = 5.0
"""Longest wait for the context functions, in seconds: typed words have no early start."""


class TextLine:
    """The ``Line`` of a conversation in text."""

    def __init__(self, history: History) -> None:
        self._said: list[str] = []
        self._history = history

    def take(self) -> str:
        """Return what tools have said since the last call of this, with a blank behind each of it."""
        said, self._said = self._said, []
        return "".join(f"{words} " for words in said)

    async def say(self, words: str) -> None:
        """Add words to the answer. It never waits, so there is nothing to cancel."""
        self._said.append(words)

    async def hang_up(self, say: str, reason: str) -> None:
        """Raise ToolError: there is no call. It never waits, so there is nothing to cancel."""
        raise ToolError("This conversation is in text: it cannot be hung up.")

    async def record(self, announce: bool) -> None:
        """Raise ToolError: there is no sound. It never waits, so there is nothing to cancel."""
        raise ToolError("This conversation is in text: it cannot be recorded.")

    def stop_recording(self) -> None:
        """Do nothing: nothing is recorded."""

    def transcript(self) -> Sequence[Message]:
        """Return the conversation, in OpenAI's chat format."""
        return self._history.transcript()

    def configured(self) -> None:
        """Do nothing: the next request has new options."""


async def agent_answer(llm: Llm, history: History, host: AgentHost, call: Call) -> AsyncGenerator[str, None]:
    """Yield the words of the answer to the end of a history, and run the tools that the model calls.

    The calls and their results are added to the history. What a tool says precedes the next answer. Closing
    cancels the tools. Raises ModelError.
    """
    line = TextLine(history)
    call.connect(line)
    found = await _known(host, call, history.last_user_words)
    run = partial(host.run_tool, call)
    async with aclosing(answered(llm, history, host.tools, run, found)) as words:
        async for piece in words:
            yield piece or line.take()


async def answered(
    llm: Llm,
    history: History,
    tools: Tools,
    run: Callable[[ToolCall], Awaitable[ToolResult]],
    found: str = "",
) -> AsyncGenerator[str, None]:
    """Yield the words of the answer to the end of a history, and "" each time that tools have run.

    run: runs a tool. found: what was retrieved for the user's last words. The calls and their results are
    added to the history. Without tools the request gives way to replies. Closing cancels the tools. Raises
    ModelError, also for a model that calls tools in ``MOST_ROUNDS`` answers in a row.
    """
    if not (isinstance(llm, ToolLlm) and tools.functions):
        async with aclosing(text_answer(llm, informed(history.messages(), found))) as answer:
            async for word in answer:
                yield word
        return
    for _ in range(MOST_ROUNDS):
        words: list[str] = []
        calls: list[ToolCall] = []
        prompt = informed(history.messages(), found)
        async with aclosing(filtered(llm.answer(prompt, tools), AnswerFilter())) as pieces:
            async for piece in pieces:
                if isinstance(piece, ToolCall):
                    calls.append(piece)
                else:
                    words.append(piece)
                    yield piece
        if not calls:
            return
        history.add("assistant", "".join(words))
        added = [history.add_call(asked) for asked in calls]
        results = await asyncio.gather(*(run(asked) for asked in added))
        for asked, result in zip(added, results, strict=True):
            history.insert(*result_of(asked.id, result.text))
        yield ""
    raise ModelError("language model", f"it called tools in {MOST_ROUNDS} answers in a row")


async def _known(host: AgentHost, call: Call, words: str) -> str:
    """Return what the context functions know for these words."""
    if (knowledge := host.knowledge(call)) is None or not words:
        return ""
    try:
        async with asyncio.timeout(CONTEXT_S):
            return cut(await knowledge(words))
    except TimeoutError:
        log.warning("call %s: the context functions took longer than %g s", call.info.id, CONTEXT_S)
        return ""
