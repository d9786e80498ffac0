"""The embedded language model, if its chat template knows tools."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

from rejoinder.models.llm.ort.adapter import OrtLlm
from rejoinder.models.llm.ort.ahead import ahead
from rejoinder.models.llm.ort.call_guide import CallGuide
from rejoinder.models.llm.ort.decoder_graph import prepared
from rejoinder.models.llm.ort.drafts import Drafts
from rejoinder.models.llm.ort.prompts import OrtPrompts
from rejoinder.models.llm.ort.sampling import Sampling
from rejoinder.models.llm.written_calls import WrittenCalls
from rejoinder.pipeline.interfaces import NO_TOOLS, Message, ToolCall, Tools
from rejoinder.pipeline.replying.text.answer_filter import MAX_TOKENS

OPENING = '{"name": %s, "arguments": {'
"""How a call begins; the name is JSON."""


def open_ort(path: Path, threads: int, sampling: Sampling | None = None) -> OrtLlm:
    """Load a model: a ``ToolOrtLlm`` if its chat template knows tools, otherwise an ``OrtLlm``.

    Raises ModelError like ``OrtLlm``.
    """
    return (ToolOrtLlm if _knows_tools(path) else OrtLlm)(path, threads, sampling)


class ToolOrtLlm(OrtLlm):
    """A model on this machine that calls tools. It writes each call as JSON."""

    def __init__(self, path: Path, threads: int, sampling: Sampling | None = None) -> None:
        super().__init__(path, threads, sampling)
        self._call_drafts = Drafts()

    def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        """Stream the answer, and each tool call as soon as it is whole. Otherwise like ``reply``.

        A required call is begun for the model. Raises ModelError also for a call that is incomplete, has no
        valid arguments, or names an unknown tool.
        """
        return ahead(self._answer(messages, tools), MAX_TOKENS)

    def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer as ``OrtLlm`` does, without calls.

        After earlier calls in the conversation a model may write another call, which is dropped.
        """
        if any("tool_calls" in message for message in messages):
            return ahead(self._text_only(messages), MAX_TOKENS)
        return super().reply(messages)

    async def warm_answer(self, messages: Sequence[Message], tools: Tools) -> None:
        """Read a prompt with tools into the cache of a slot.

        Cancelling keeps what was read. Raises ModelError.
        """
        await self._warm(messages, tools)

    async def _text_only(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        async with aclosing(self._answer(messages, NO_TOOLS)) as pieces:
            async for piece in pieces:
                if isinstance(piece, str):
                    yield piece

    async def _answer(
        self, messages: Sequence[Message], tools: Tools
    ) -> AsyncGenerator[str | ToolCall, None]:
        calls = WrittenCalls([tool["function"]["name"] for tool in tools.functions], self.name)
        guide = self._guide(messages, tools)
        begun = guide.begin() if tools.choice != "auto" else []
        prompt = [*await self._encoded(messages, tools), *begun]
        calls.take(self._tokenizer.decode(begun))
        guide.in_call = calls.in_object
        with self._priority_gate.priority():
            async with self._slots.take(messages, tools) as index:
                tokens = self._tokens(self._cache_slots[index], prompt, self._call_drafts, guide)
                async with aclosing(self._text(tokens)) as pieces:
                    async for text in pieces:
                        for piece in calls.take(text):
                            yield piece
                            if isinstance(piece, ToolCall) and not tools.parallel:
                                return
                        guide.in_call = calls.in_object
        for piece in calls.end():
            yield piece

    def _guide(self, messages: Sequence[Message], tools: Tools) -> CallGuide:
        """Return the guide of an answer.

        After a result the answer is in words, unless a call is required: a small model would make the same
        call again, or read the result out as JSON.
        """
        names = [tool["function"]["name"] for tool in tools.functions]
        if isinstance(tools.choice, dict):
            names = [tools.choice["function"]["name"]]
        elif tools.choice == "auto" and messages[-1]["role"] == "tool":
            names = []
        openings = [self._prompts.ids(OPENING % json.dumps(name)) for name in names]
        return CallGuide(openings, self._prompts.braces, self._sampling, self._random)


def _knows_tools(path: Path) -> bool:
    try:
        return OrtPrompts(prepared(path), "").knows_tools()
    except Exception:  # ``OrtLlm`` reports the error
        return False
