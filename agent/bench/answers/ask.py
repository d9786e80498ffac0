"""Asks a language model the questions, with the agent's own instructions, and times its answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from rejoinder.agent.bench.answers.questions import Half, Question
from rejoinder.pipeline import Options
from rejoinder.pipeline.history import History
from rejoinder.pipeline.interfaces import Llm
from rejoinder.pipeline.replying.text.answer_filter import AnswerFilter, filtered

NOW = datetime(2026, 3, 4, 15, 20)
"""When the questions are asked, for those about the date and the time: a Wednesday."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and the answer to its last turn. The seconds count from the request; 0 if nothing came."""

    question: Question
    text: str
    first_s: float
    whole_s: float
    tokens: int


async def ask(llm: Llm, question: Question, options: Options) -> Asked:
    """Say every turn of a question, and return the answer to the last one.

    The prompt is that of a call: instructions, examples, and the turns and answers so far. Raises ModelError.
    Cancelling closes the model's answer.
    """
    history = History.of(options, llm)
    answer = Asked(question, "", 0.0, 0.0, 0)
    for number, turn in enumerate(question.turns):
        answer = await _answer(llm, history, question, turn, options.max_tokens)
        history.add_user(turn)
        history.begin_reply(number)
        history.settle(number, answer.text, cut=False)
    return answer


async def _answer(llm: Llm, history: History, question: Question, turn: str, max_tokens: int) -> Asked:
    limits, pieces, first = AnswerFilter(max_tokens), [], 0.0
    began = time.perf_counter()
    async with aclosing(filtered(llm.reply(history.messages(turn)), limits)) as words:
        async for piece in words:
            first = first or time.perf_counter() - began
            pieces.append(piece)
    return Asked(question, "".join(pieces).strip(), first, time.perf_counter() - began, limits.tokens)


class Halved(Protocol):
    """One of a set in two halves."""

    @property
    def half(self) -> Half:
        """The half that it is in."""
        ...


Asking = TypeVar("Asking", bound=Halved)


def of_half(questions: Sequence[Asking], half: Half) -> list[Asking]:
    """Return the questions of one half, or of both."""
    return [one for one in questions if half in (one.half, Half.BOTH)]
