"""Asks a language model the requests for tools, and sums up what it called."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from rejoinder.agent.bench.answers.rules import Normalise
from rejoinder.agent.bench.answers.tool_rules import ToolRequest, Verdict, judge
from rejoinder.agent.bench.reports.waterfall import ms, summarise
from rejoinder.pipeline import ModelError, Options, ToolCall, ToolLlm
from rejoinder.pipeline.history import History
from rejoinder.pipeline.interfaces import Llm
from rejoinder.pipeline.replying.text.answer_filter import AnswerFilter, filtered


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The answer to a request: words, calls, or the reason why it failed.

    first_s: seconds from the request to the first words or call; 0 if nothing came.
    """

    request: ToolRequest
    text: str
    calls: Sequence[ToolCall]
    first_s: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class ToolScore:
    """The answers to all requests.

    needed, right: requests that need a call, and those of them answered with the right one. unneeded,
    needless: requests that need none, and those of them answered with one.
    """

    needed: int
    right: int
    unneeded: int
    needless: int


async def ask_tools(llm: Llm, request: ToolRequest, options: Options) -> ToolAnswer:
    """Ask for one request, with the tools of ``options``, and return the answer. Cancelling closes it.

    A call that the model writes wrong is an answer that failed. Raises ModelError if the model has no tools.
    """
    if not isinstance(llm, ToolLlm):
        raise ModelError(type(llm).__name__, "this language model cannot call tools: take another --llm")
    history = History.of(options, llm)
    words: list[str] = []
    calls: list[ToolCall] = []
    first, error, began = 0.0, "", time.perf_counter()
    pieces = llm.answer(history.messages(request.ask), options.tools)
    try:
        async with aclosing(filtered(pieces, AnswerFilter(options.max_tokens))) as answer:
            async for piece in answer:
                first = first or time.perf_counter() - began
                if isinstance(piece, ToolCall):
                    calls.append(piece)
                else:
                    words.append(piece)
    except ModelError as failed:
        error = str(failed)
    return ToolAnswer(request, "".join(words).strip(), calls, first, error)


def verdict(answer: ToolAnswer, normalise: Normalise) -> Verdict:
    """Return how an answer is judged. One that failed is no answer."""
    if answer.error:
        return Verdict.SILENT
    return judge(answer.request, answer.text, answer.calls, normalise)


def score_tools(answers: Sequence[ToolAnswer], normalise: Normalise) -> ToolScore:
    """Return the score of the answers to all requests."""
    verdicts = [(answer.request.call, verdict(answer, normalise)) for answer in answers]
    needed = [judged for call, judged in verdicts if call]
    unneeded = [judged for call, judged in verdicts if not call]
    return ToolScore(
        len(needed), needed.count(Verdict.RIGHT), len(unneeded), unneeded.count(Verdict.NEEDLESS)
    )


def tool_table(spec: str, answers: Sequence[ToolAnswer], normalise: Normalise) -> Table:
    """Return a table with one line per kind of request, and one for all."""
    shown = Table(title=spec, title_justify="left", title_style="bold", box=None)
    for name in ("", "asked", *Verdict, "first p50 ms", "p95"):
        shown.add_column(name, justify="right" if name else "left", no_wrap=not name)
    kinds = list(dict.fromkeys(answer.request.kind for answer in answers))
    for kind in [*kinds, "all"]:
        part = [answer for answer in answers if kind in (answer.request.kind, "all")]
        counts = Counter(verdict(answer, normalise) for answer in part)
        first = summarise([answer.first_s * 1000 for answer in part])
        shown.add_row(
            kind, str(len(part)), *(str(counts[one]) for one in Verdict), ms(first.p50), ms(first.p95)
        )
    return shown


def wrong_calls(answers: Sequence[ToolAnswer], normalise: Normalise) -> list[str]:
    """Return one line for each wrong answer: the request, the verdict and what the model did."""
    lines = []
    for answer in answers:
        if (judged := verdict(answer, normalise)) is not Verdict.RIGHT:
            did = [*(f"{call.name}({call.arguments})" for call in answer.calls), answer.text, answer.error]
            lines.append(f"{judged}: {answer.request.ask} -> {' '.join(' '.join(did).split())}")
    return lines


def as_tool_json(answers: Sequence[ToolAnswer], normalise: Normalise) -> list[dict[str, Any]]:
    """Return the answers and how they were judged, for a report."""
    return [
        {
            "kind": answer.request.kind,
            "half": answer.request.half,
            "asked": answer.request.ask,
            "said": answer.text,
            "called": [asdict(call) for call in answer.calls],
            "error": answer.error,
            "verdict": verdict(answer, normalise),
            "first_ms": round(answer.first_s * 1000, 1),
        }
        for answer in answers
    ]
