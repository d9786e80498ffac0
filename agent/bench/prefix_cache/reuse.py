"""Measures how much of each prompt the engine of a language model has in its KV cache, over whole calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from rejoinder.pipeline import Llm, MeasuredLlm, Message
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.llm_statistics import LlmStatistics

HOTEL = (
    "You answer the telephone of a small hotel by the sea, in one or two short sentences. A room costs "
    "eighty pounds a night with breakfast, which is from seven to ten. Dogs are welcome in the rooms on the "
    "ground floor. The beach is five minutes away on foot, and the station fifteen. Park behind the house. "
    "Never promise a room before you know the name, the day of arrival and the number of nights."
)
"""The instructions of each call."""
CALL_LINES = (
    "Good morning, is this the hotel by the sea?",
    "I would like a room for the next weekend.",
    "What does it cost for two nights?",
    "Is there a bus from the station?",
    "We come with a small dog. Is that all right?",
    "When is breakfast on Sundays?",
    "Where do we leave the car?",
    "How far is it to the beach?",
    "Can we arrive late on Friday, at about eleven?",
    "My name is Ada Moore. Please book it.",
)
"""What the caller says, one line a turn."""
NEXT_CALL_LINES = (
    "Hello, do you have a single room in May?",
    "No, I come alone, and only for one night.",
)
"""The first lines of the next call."""
ANSWER_PIECES = 24
"""Pieces of an answer that are awaited: a spoken sentence."""


@dataclass(frozen=True, slots=True)
class TurnReuse:
    """The prompt of one turn.

    call, turn: numbers from 1. counts: what the engine counted. first_token_s: seconds from the request to
    the first token.
    """

    call: int
    turn: int
    counts: LlmStatistics
    first_token_s: float


async def measure_reuse(llm: Llm, advance: Callable[[], None] = lambda: None) -> list[TurnReuse]:
    """Hold a call of ten turns, then begin another one with the same instructions.

    Raises ModelError if the model has no statistics. Cancelling closes the request.
    """
    turns = []
    for call, lines in enumerate((CALL_LINES, NEXT_CALL_LINES), 1):
        history = [Message(role="system", content=HOTEL)]
        for turn, line in enumerate(lines, 1):
            history.append(Message(role="user", content=line))
            before = read(llm)
            first_token_s, words = await _answer(llm, history)
            turns.append(TurnReuse(call, turn, read(llm) - before, first_token_s))
            history.append(Message(role="assistant", content=words))
            advance()
    return turns


def read(llm: Llm) -> LlmStatistics:
    """Return the statistics of a model. Raises ModelError if it has none."""
    if isinstance(llm, MeasuredLlm):
        return llm.statistics
    reason = "has no statistics of its engine: models in this process have them, ort: and vllm:"
    raise ModelError(getattr(llm, "name", "language model"), reason)


async def _answer(llm: Llm, messages: Sequence[Message]) -> tuple[float, str]:
    """Return the seconds to the first token, and the first words of the answer."""
    sent, first = time.perf_counter(), 0.0
    words: list[str] = []
    async with aclosing(llm.reply(messages)) as pieces:
        async for piece in pieces:
            first = first or time.perf_counter() - sent
            words.append(piece)
            if len(words) == ANSWER_PIECES:
                break
    if not words:
        raise ModelError("language model", "the answer has no words")
    return first, "".join(words)


def table(turns: Sequence[TurnReuse]) -> Table:
    """Return the figures of each turn for the terminal."""
    shown = Table("call", "turn", "prompt", "cached", "read", "first token")
    for one in turns:
        counts = one.counts
        new = counts.prompt_tokens - counts.cached_tokens
        row = (one.call, one.turn, counts.prompt_tokens, counts.cached_tokens, new)
        shown.add_row(*map(str, row), f"{1000 * one.first_token_s:.0f} ms")
    return shown


def report(turns: Sequence[TurnReuse]) -> list[dict[str, Any]]:
    """Return the figures of each turn for JSON."""
    return [asdict(one) for one in turns]
