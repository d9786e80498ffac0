"""The embedded language model, if its chat template knows tools."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rejoinder.models.llm.ort.adapter import OrtLlm, open_prompts
from rejoinder.models.llm.ort.ahead import ahead
from rejoinder.models.llm.ort.call_guide import CallGuide, CallOpening, CallOpenings, probability
from rejoinder.models.llm.ort.decoder import KvCacheSlot, Logits
from rejoinder.models.llm.ort.drafts import Drafts
from rejoinder.models.llm.ort.sampling import Sampling
from rejoinder.models.llm.tool_calls import has_calls, without_calls
from rejoinder.models.llm.written_calls import WrittenCalls
from rejoinder.pipeline.interfaces import NO_TOOLS, Message, ToolCall, Tools
from rejoinder.pipeline.replying.text.answer_filter import MAX_TOKENS

LIKELY = 0.4
"""Least probability of a call, fitted to the tuning half of ``tools.toml`` with Qwen2.5-Coder 0.5B."""
FAR_LESS = 0.2
"""A name with less than this share of the likeliest one's probability is left out."""
CALL_OPENING = '{"name": '
"""What a call begins with, before the name as JSON."""
ARGUMENTS = ', "arguments": {'
"""What follows the name."""
TELL = "The result is: {}\n\nTell me all of it in one short sentence."
"""A tool's result in the prompt of the answer (docs/lab/latency-models.md)."""


def open_ort(path: Path, threads: int, sampling: Sampling | None = None) -> OrtLlm:
    """Load a model: a ``ToolOrtLlm`` if its chat template knows tools, otherwise an ``OrtLlm``.

    Raises ModelError like ``OrtLlm``.
    """
    prompts = open_prompts(path)
    return (ToolOrtLlm if prompts.knows_tools() else OrtLlm)(path, threads, sampling, prompts)


class ToolOrtLlm(OrtLlm):
    """A model on this machine that calls tools. It writes each call as JSON."""

    @cached_property
    def _call_drafts(self) -> Drafts:
        return Drafts()

    def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        """Stream the answer: words, or tool calls, each as soon as it is whole. Otherwise like ``reply``.

        After the result of a call, the answer is in words, from a prompt without tools, unless a call is
        required. A required call is begun for the model. Raises ModelError also for a call that is incomplete
        or has no valid arguments.
        """
        return ahead(self._answer(messages, tools), MAX_TOKENS)

    def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer as ``OrtLlm`` does.

        After earlier calls in the conversation, marks of code are left out, so that it contains no call.
        """
        if has_calls(messages):
            return ahead(without_calls(self._answer(messages, NO_TOOLS)), MAX_TOKENS)
        return super().reply(messages)

    async def warm_answer(self, messages: Sequence[Message], tools: Tools) -> None:
        """Read a prompt with tools into the cache of a slot.

        Cancelling keeps what was read. Raises ModelError.
        """
        await self._warm(messages, tools)

    async def _answer(
        self, messages: Sequence[Message], tools: Tools
    ) -> AsyncGenerator[str | ToolCall, None]:
        if tools.choice == "auto" and messages[-1]["role"] == "tool":
            # Beside the tools' definitions, a small model makes the same call again, or writes code. And a
            # result alone it takes for a task of its own: "Mark the table as booked."
            tools = NO_TOOLS
            messages = [*messages[:-1], {**messages[-1], "content": TELL.format(messages[-1]["content"])}]
        calls = WrittenCalls([tool["function"]["name"] for tool in tools.functions], self.name)
        openings = self._openings(tools)
        marks, unspoken = self._prompts.call_marks, self._prompts.unspoken
        guide = CallGuide(openings, marks, unspoken, self._sampling, self._random)
        prompt = await self._encoded(messages, tools)
        with self._priority_gate.priority():
            async with self._slots.take(messages, tools) as index:
                slot, first = self._cache_slots[index], None
                if openings:
                    (first,) = await self._read(slot, prompt)
                    if begun := await self._begun(slot, prompt, first, openings, tools.choice == "auto"):
                        calls.take(self._tokenizer.decode(begun))
                        guide.in_call, prompt, first = True, [*prompt, *begun], None
                tokens = self._tokens(slot, prompt, self._call_drafts, guide, first)
                async with aclosing(self._text(tokens)) as pieces:
                    async for text in pieces:
                        for piece in calls.take(text):
                            yield piece
                            if isinstance(piece, ToolCall) and not tools.parallel:
                                return
                        guide.in_call = calls.in_object
        for piece in calls.end():
            yield piece

    def _openings(self, tools: Tools) -> CallOpenings:
        """Return the calls that an answer may make."""
        names = [tool["function"]["name"] for tool in tools.functions]
        if isinstance(tools.choice, dict):
            names = [tools.choice["function"]["name"]]
        return CallOpenings([self._opening(json.dumps(name)) for name in names])

    def _opening(self, name: str) -> CallOpening:
        start, end, tokens = (
            self._prompts.ids(text)
            for text in (CALL_OPENING + '"', CALL_OPENING + name, CALL_OPENING + name + ARGUMENTS)
        )
        return CallOpening(tokens, len(start), len(end))

    async def _begun(
        self, slot: KvCacheSlot, prompt: list[int], first: Logits, openings: CallOpenings, may_speak: bool
    ) -> list[int]:
        """Return the opening of the call with which the answer begins, or [] for an answer in words.

        The answer begins with a call if the model would do so, with the name of one of the tools, with a
        probability of at least ``LIKELY``. A model of this size often begins a call that no tool serves, and
        then writes another name.

        first: the logits after the prompt, float32 [vocabulary]. may_speak: False if a call is required.
        """
        chance = probability(first, self._prompts.call_marks)
        if may_speak and chance < LIKELY:
            return []
        names = await self._names(slot, prompt, [], openings)
        return [] if may_speak and chance * names.all < LIKELY else names.opening

    async def _names(
        self, slot: KvCacheSlot, prompt: list[int], begun: list[int], openings: CallOpenings
    ) -> LikelyNames:
        """Read the tools' names that begin so; names that are far less likely than another are left out."""
        forced = openings.forced(begun)
        rows = await self._read(slot, [*prompt, *begun], forced)
        share, begun = 1.0, list(begun)
        for row, token in zip(rows, forced, strict=False):
            share *= probability(row, [token]) if openings.in_name(begun) else 1.0
            begun.append(token)
        if not (allowed := openings.after(begun)):
            return LikelyNames(share, share, begun)
        chances = sorted((probability(rows[-1], [token]), token) for token in allowed)
        every, best = 0.0, LikelyNames(0.0, -1.0, begun)
        for chance, token in chances:  # the likeliest comes last, so that it stays in the cache
            if chance >= chances[-1][0] * FAR_LESS:
                found = await self._names(slot, prompt, [*begun, token], openings)
                every += chance * found.all
                best = max(best, replace(found, best=chance * found.best), key=lambda one: one.best)
        return LikelyNames(share * every, share * best.best, best.opening)


@dataclass(frozen=True, slots=True)
class LikelyNames:
    """How likely the model is to write names of tools.

    all: probability of one of them. best: probability of the likeliest. opening: the call of the likeliest.
    """

    all: float
    best: float
    opening: list[int]
