"""Measures a language model as calls use it: first words, tokens per second, several callers, cancelling."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from rejoinder.agent.bench.reports.waterfall import Summary, summarise
from rejoinder.pipeline.interfaces import Llm, Message

TOPICS = ("Rome", "Sweden", "Kenya", "Japan", "Texas", "Chile", "Canada", "Egypt", "Vienna", "Dublin")
"""What the questions are about: each is asked once."""
TOKENS = 40
"""Tokens of an answer that is timed: about ten seconds of speech."""
CALLERS = 4
"""Answers that are written at the same time."""
CUT_AFTER = 5
"""Tokens after which an answer is cancelled."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a language model is, in milliseconds and tokens per second.

    cold: first words, with nothing of the prompt read before. warm: the same after ``Llm.warm`` has read all
    but the last two words. cancelled: like warm, just after another answer was cancelled. alone: tokens per
    second of one answer. together: of the slowest of ``CALLERS`` answers at the same time.
    """

    cold: Summary
    warm: Summary
    cancelled: Summary
    alone: float
    together: float


async def measure(llm: Llm, instructions: str) -> Speed:
    """Ask a question about each of the ``TOPICS`` in several ways. Raises ModelError.

    Cancelling closes the answers.
    """
    cold, warm, cancelled = [], [], []
    for number, topic in enumerate(TOPICS):
        # The number is at the beginning, so that no prompt is known from the one before.
        cold.append(await _first_ms(llm, _prompt(f"{number}. {instructions}", topic)))
    for topic in TOPICS:
        await llm.warm(_prompt(instructions, topic, whole=False))
        warm.append(await _first_ms(llm, _prompt(instructions, topic)))
    for topic, other in zip(TOPICS, reversed(TOPICS), strict=True):
        await llm.warm(_prompt(instructions, topic, whole=False))
        await _write(llm, _prompt(f"You are in {other}. {instructions}", other), CUT_AFTER)
        cancelled.append(await _first_ms(llm, _prompt(instructions, topic)))
    alone = [await _write(llm, _prompt(instructions, topic), TOKENS) for topic in TOPICS[:CALLERS]]
    prompts = [_prompt(instructions, topic) for topic in TOPICS[-CALLERS:]]
    for prompt in prompts:
        await llm.warm(prompt)
    together = await asyncio.gather(*(_write(llm, prompt, TOKENS) for prompt in prompts))
    return Speed(
        summarise(cold), summarise(warm), summarise(cancelled), sum(alone) / len(alone), min(together)
    )


def _prompt(instructions: str, topic: str, whole: bool = True) -> list[Message]:
    last = " in spring?" if whole else ""
    asked = f"I plan a journey. Please tell me a long story about the weather and the food of {topic}{last}"
    return [Message(role="system", content=instructions), Message(role="user", content=asked)]


async def _first_ms(llm: Llm, messages: Sequence[Message]) -> float:
    began = time.perf_counter()
    async with aclosing(llm.reply(messages)) as pieces:
        async for _ in pieces:
            break
    return 1000 * (time.perf_counter() - began)


async def _write(llm: Llm, messages: Sequence[Message], most: int) -> float:
    """Read an answer of up to ``most`` tokens, cancel the rest, and return its tokens per second."""
    began = latest = 0.0
    count = 0
    async with aclosing(llm.reply(messages)) as pieces:
        async for _ in pieces:
            latest = time.perf_counter()
            began, count = began or latest, count + 1
            if count == most:
                break
    return (count - 1) / (latest - began) if count > 1 else 0.0
