"""Compares three ways to answer questions: always a large model, always a small one, and by rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rejoinder.agent.bench.answers.ask import NOW, Asked, ask
from rejoinder.agent.bench.answers.questions import Question
from rejoinder.agent.bench.answers.rules import Normalise, is_right
from rejoinder.agent.bench.reports.waterfall import Summary, summarise
from rejoinder.agent.config import load
from rejoinder.models.llm.routing.choosing import Facts, choose, word_count
from rejoinder.models.llm.routing.difficulty import judge
from rejoinder.models.llm.routing.settings import RouteSettings
from rejoinder.models.loading import open_llm
from rejoinder.pipeline.history import History
from rejoinder.pipeline.interfaces import Llm, TokenLlm
from rejoinder.pipeline.options import Options

SMALL = "small-one"
"""The name of the small model in the rules of the bench."""
OUTPUT_TIMES = 4.0
"""Price of a written token, in read ones: the usual ratio of hosted models."""
CHARACTERS_PER_TOKEN = 4.0
"""Of a prompt for a model that does not count its tokens."""


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer of one model. cost: in read tokens of the large model."""

    asked: Asked
    right: bool
    cost: float


@dataclass(frozen=True, slots=True)
class WayFigures:
    """The figures of one way. by_small: questions that the small model answered. first: ms to the first word.

    cost, kept: shares of the cost and of the right answers of "always big".
    """

    name: str
    asked: int
    by_small: int
    right: int
    cost: float
    kept: float
    first: Summary
    whole: Summary


async def answers_of(
    spec: str, price: float, questions: Sequence[Question], normalise: Normalise, done: Callable[[], None]
) -> list[JudgedAnswer]:
    """Return the answers of a model to all questions, with the prompt of a call. Raises PipelineError.

    price: of its tokens, as a share of the large model's. done: called after each question. Cancelling closes
    the model.
    """
    settings, _ = load({"llm": spec})
    options, found = settings.options(NOW), list[JudgedAnswer]()
    async with open_llm(settings.llm, settings.threads(), settings.placement()) as llm:
        for question in questions:
            asked = await ask(llm, question, options)
            tokens = _prompt_tokens(llm, question, options) + OUTPUT_TIMES * asked.tokens
            found.append(JudgedAnswer(asked, is_right(question, asked.text, normalise), price * tokens))
            done()
    return found


def _prompt_tokens(llm: Llm, question: Question, options: Options) -> float:
    history = History.of(options, llm)
    for turn in question.turns[:-1]:
        history.add_user(turn)
    messages = history.messages(question.turns[-1])
    if isinstance(llm, TokenLlm):
        return float(llm.count(messages))
    return sum(len(message["content"]) for message in messages) / CHARACTERS_PER_TOKEN


def routed_to_small(question: Question, rules: Sequence[RouteSettings]) -> bool:
    """Return whether the rules choose the small model for the last turn of a question."""
    words = question.turns[-1]
    facts = Facts(word_count(words), difficulty=judge(words))
    return choose(facts, list(enumerate(rules, 1))).model == SMALL


def ways(
    big: Sequence[JudgedAnswer], small: Sequence[JudgedAnswer], rules: Sequence[RouteSettings]
) -> list[WayFigures]:
    """Return the figures of the three ways, from the answers of both models to the same questions."""
    chosen = [routed_to_small(one.asked.question, rules) for one in big]
    routed = [theirs if to_small else ours for ours, theirs, to_small in zip(big, small, chosen, strict=True)]
    whole, right = sum(one.cost for one in big) or 1.0, sum(one.right for one in big) or 1
    return [
        _figures(name, answers, by_small, whole, right)
        for name, answers, by_small in (
            ("always big", big, 0),
            ("always small", small, len(small)),
            ("by rules", routed, sum(chosen)),
        )
    ]


def _figures(
    name: str, answers: Sequence[JudgedAnswer], by_small: int, whole: float, right: int
) -> WayFigures:
    kept = sum(one.right for one in answers)
    return WayFigures(
        name,
        len(answers),
        by_small,
        kept,
        sum(one.cost for one in answers) / whole,
        kept / right,
        summarise([1000.0 * one.asked.first_s for one in answers]),
        summarise([1000.0 * one.asked.whole_s for one in answers]),
    )


def router_ms(questions: Sequence[Question], rules: Sequence[RouteSettings], times: int = 20) -> Summary:
    """Return how long a decision takes, in milliseconds."""
    took = []
    for question in [*questions] * times:
        began = time.perf_counter()
        routed_to_small(question, rules)
        took.append(1000.0 * (time.perf_counter() - began))
    return summarise(took)
