"""Measures how much sooner the first token comes if the prompt was sent ahead."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from statistics import median

from rejoinder.pipeline import Llm, Message
from rejoinder.pipeline.errors import ModelError

PARTIAL = "Could you tell me at what time"
"""What the caller has said when the prompt is sent ahead."""
WHOLE = "Could you tell me at what time the shop on the corner opens tomorrow?"
"""What the caller has said at the end of the turn."""
VOCABULARY = (
    "the shop opens at nine and closes six while a train leaves platform two every hour tickets cost four "
    "pounds for children under twelve dogs travel free on weekdays bring your own lunch or ask staff inside"
).split()
"""Words of the instructions. Their order is random, so that no prompt begins as an earlier one does."""


@dataclass(frozen=True, slots=True)
class WarmingTimes:
    """Times of one round, in seconds.

    cold, warmed: from the request to the first token, of two prompts of the same length. warming: what
    sending the second prompt ahead took.
    """

    cold: float
    warmed: float
    warming: float


async def measure_warming(
    llm: Llm,
    rounds: int,
    words: int,
    seed: int,
    advance: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[WarmingTimes]:
    """Ask with new instructions of ``words`` words twice a round, once after the prompt was sent ahead.

    Which of the two comes first alternates. Raises ModelError. Cancelling closes the request.
    """
    chance = random.Random(seed)
    times = []
    for number in range(rounds):
        first: dict[bool, tuple[float, float]] = {}
        for warmed in (number % 2 == 0, number % 2 == 1):
            instructions = " ".join(chance.choices(VOCABULARY, k=words))
            began = clock()
            if warmed:
                await llm.warm(_prompt(instructions, PARTIAL))
            sent = clock()
            await _first_token(llm, _prompt(instructions, WHOLE))
            first[warmed] = clock() - sent, sent - began
        times.append(WarmingTimes(first[False][0], *first[True]))
        advance()
    return times


async def _first_token(llm: Llm, messages: list[Message]) -> None:
    async with aclosing(llm.reply(messages)) as pieces:
        async for _ in pieces:
            return
    raise ModelError("language model", "the answer has no words")


def _prompt(instructions: str, question: str) -> list[Message]:
    return [Message(role="system", content=instructions), Message(role="user", content=question)]


def summary(times: list[WarmingTimes]) -> dict[str, float]:
    """Return the medians in seconds, and the share of the cold first token's time that is left."""
    cold, warmed = median(one.cold for one in times), median(one.warmed for one in times)
    return {
        "cold_s": cold,
        "warmed_s": warmed,
        "warming_s": median(one.warming for one in times),
        "ratio": warmed / cold,
    }
