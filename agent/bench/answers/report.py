"""Sums up how a language model answered: right answers by kind, style, length and speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from rejoinder.agent.bench.answers.ask import Asked
from rejoinder.agent.bench.answers.rules import Normalise, is_right, is_spoken, sentences
from rejoinder.agent.bench.reports.waterfall import Summary, ms, summarise

WORDS_PER_SECOND = 2.7
"""Words that the default voice speaks in a second: 160 a minute."""
MOST_SENTENCES = 3
"""Most sentences of an answer that the caller did not ask to be long."""


@dataclass(frozen=True, slots=True)
class Score:
    """The answers to the questions of one kind, or to all of them. The first words are in milliseconds."""

    kind: str
    asked: int
    right: int
    spoken: int
    short: int
    first: Summary
    tokens_per_second: float
    speech_s: Summary


def rows(answers: Sequence[Asked], normalise: Normalise) -> list[Score]:
    """Return one row for each kind of question, in order, and one for all."""
    kinds = list(dict.fromkeys(answer.question.kind for answer in answers))
    parts = [[answer for answer in answers if answer.question.kind == kind] for kind in kinds]
    named = zip([*kinds, "all"], [*parts, answers], strict=True)
    return [score(kind, part, normalise) for kind, part in named]


def score(kind: str, answers: Sequence[Asked], normalise: Normalise) -> Score:
    """Return the score of answers that belong together. kind: what the score is of."""
    seconds = sum(answer.whole_s - answer.first_s for answer in answers)
    return Score(
        kind,
        len(answers),
        sum(is_right(answer.question, answer.text, normalise) for answer in answers),
        sum(is_spoken(answer.text) for answer in answers),
        sum(sentences(answer.text) <= MOST_SENTENCES for answer in answers),
        summarise([answer.first_s * 1000 for answer in answers]),
        sum(max(answer.tokens - 1, 0) for answer in answers) / seconds if seconds else 0.0,
        summarise([len(answer.text.split()) / WORDS_PER_SECOND for answer in answers]),
    )


def table(spec: str, found: Sequence[Score]) -> Table:
    """Return a table with one line per row."""
    shown = Table(title=spec, title_justify="left", title_style="bold", box=None)
    columns = (
        "",
        "asked",
        "right",
        "%",
        "fit to speak",
        f"up to {MOST_SENTENCES} sentences",
        "first word p50 ms",
        "p95",
        "tokens/s",
        "speech p95 s",
    )
    for name in columns:
        shown.add_column(name, justify="right" if name else "left")
    for row in found:
        shown.add_row(
            row.kind,
            str(row.asked),
            str(row.right),
            f"{100 * row.right / row.asked:.0f}",
            str(row.spoken),
            str(row.short),
            ms(row.first.p50),
            ms(row.first.p95),
            f"{row.tokens_per_second:.0f}",
            f"{row.speech_s.p95 or 0.0:.1f}",
        )
    return shown


def wrong(answers: Sequence[Asked], normalise: Normalise) -> list[str]:
    """Return one line for each wrong answer: the question and what the model said."""
    return [
        f"{answer.question.kind}: {' / '.join(answer.question.turns)} -> {' '.join(answer.text.split())}"
        for answer in answers
        if not is_right(answer.question, answer.text, normalise)
    ]


def as_json(answers: Sequence[Asked], normalise: Normalise) -> list[dict[str, Any]]:
    """Return the answers and how they were judged, for a report."""
    return [
        {
            "kind": answer.question.kind,
            "half": answer.question.half,
            "asked": list(answer.question.turns),
            "said": answer.text,
            "right": is_right(answer.question, answer.text, normalise),
            "first_ms": round(answer.first_s * 1000, 1),
            "whole_ms": round(answer.whole_s * 1000, 1),
            "tokens": answer.tokens,
        }
        for answer in answers
    ]
