"""The call of 20 minutes with a real language model: its answers, and the time to its first words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from rejoinder.agent.bench.context.long_call import LAST_QUESTIONS, SMALL_ANSWERS, lines
from rejoinder.pipeline import Compress, History, Llm, Message, Options
from rejoinder.pipeline.replying.text.answer_filter import AnswerFilter, filtered

EDGE_TURNS = 5
"""Turns at the beginning and at the end of the call that the model answers, and whose first words count."""


@dataclass(frozen=True, slots=True)
class RealCall:
    """What a model did in one call. known: right answers of the last three. answers: these, as it gave them.

    first_ms, last_ms: the times to the first word in the first and the last turns. summaries: how often a
    summary replaced older turns. summary_s: the longest time that one took. largest: tokens of the prompts.
    """

    known: int
    answers: list[str]
    first_ms: list[float]
    last_ms: list[float]
    summaries: int
    summary_s: float
    largest: int


async def hold_real(
    llm: Llm, options: Options, compress: Compress | None, done: Callable[[], None]
) -> RealCall:
    """Hold the call in text, turn after turn. A prompt is read ahead, as it is while a caller speaks.

    The answers in between are given. done: called after each turn. Raises ModelError. Cancelling ends it.
    """
    history = History.of(options, llm)
    times, answers, largest, taken = list[float](), list[str](), 0, list[float]()
    turns = lines()
    for turn, words in enumerate(turns):
        messages = history.messages(words)
        largest = max(largest, history.size)
        if EDGE_TURNS <= turn < len(turns) - EDGE_TURNS:
            answer = SMALL_ANSWERS[turn % len(SMALL_ANSWERS)]
        else:
            await llm.warm(history.messages())
            seconds, answer = await _answered(llm, messages, options.max_tokens or 60)
            times.append(seconds * 1000.0)
            answers.append(answer)
        history.add_user(words)
        history.add("assistant", answer)
        if compress and (block := history.block()):
            begun = time.perf_counter()
            history.replace(block, await compress(block.text, block.tokens, llm))
            taken.append(time.perf_counter() - begun)
        done()
        await asyncio.sleep(0)
    last = answers[-len(LAST_QUESTIONS) :]
    known = sum(fact.lower() in one.lower() for fact, one in zip(LAST_QUESTIONS.values(), last, strict=True))
    edges = times[:EDGE_TURNS], times[-EDGE_TURNS:]
    return RealCall(known, last, *edges, len(taken), max(taken, default=0.0), largest)


async def _answered(llm: Llm, messages: Sequence[Message], tokens: int) -> tuple[float, str]:
    """Return the seconds to the first word, and the answer. Cancelling closes the request."""
    begun, first, answer = time.perf_counter(), 0.0, ""
    async with aclosing(filtered(llm.reply(messages), AnswerFilter(tokens))) as pieces:
        async for piece in pieces:
            first = first or time.perf_counter() - begun
            answer += piece
    return first, answer.strip()
