"""A call of 20 minutes in virtual time: what is known at its end, and how long the prompts are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rich.table import Table

from rejoinder.agent.bench.context.long_call import (
    EVERY_S,
    LAST_QUESTIONS,
    MINUTES,
    SPEECH_S,
    PromptReader,
    lines,
    prompt_tokens,
    shared,
)
from rejoinder.agent.simulate.scenario import SCENARIO_ENDPOINTING, Talk
from rejoinder.pipeline import Compress, Options, ReplyDone, condensed, summarise

CALL_INSTRUCTIONS = "You sell sofas on the telephone."
"""The system prompt of the call."""
CONTEXTS = (1_024, 2_048, 8_192)
"""Contexts in tokens: a small one, that of the embedded models, and what is assumed of a hosted model."""
COMPRESSIONS: dict[str, Compress | None] = {"dropped": None, "condensed": condensed, "summarised": summarise}
"""What happens to older turns. ``summarised`` has a summariser that leaves out every fact."""
NEVER_S = 60.0
"""Seconds of a summary that is never ready before the caller speaks again."""


@dataclass(frozen=True, slots=True)
class CallFigures:
    """The result of one call.

    known: answers that were right, of three. largest, mean: tokens of the prompts. changes: how often the
    start of the prompt changed, which empties a prefix cache. cached: share of the prompts' tokens that such
    a cache has. summaries: requests for a summary.
    """

    known: int
    largest: int
    mean: float
    changes: int
    cached: float
    summaries: int


def hold(context: int, compress: Compress | None, summary_s: float = 1.0) -> tuple[Talk, PromptReader]:
    """Hold the call in virtual time; return it and its language model. summary_s: time of one summary."""
    llm = PromptReader(context, summary_s)
    options = Options(CALL_INSTRUCTIONS, compress=compress, endpointing=SCENARIO_ENDPOINTING)
    talk = Talk(*lines(), llm=llm, options=options)
    for turn in range(len(lines())):
        talk.says(SPEECH_S, at=1.0 + EVERY_S * turn)
    talk.run(60.0 * MINUTES + EVERY_S)
    return talk, llm


def judge(talk: Talk, llm: PromptReader) -> CallFigures:
    """Return the figures of a call."""
    answers = [done.heard for done in talk.of(ReplyDone) if done.heard][-len(LAST_QUESTIONS) :]
    known = sum(fact in answer for fact, answer in zip(LAST_QUESTIONS.values(), answers, strict=True))
    sizes = [prompt_tokens(prompt) for prompt in llm.prompts]
    starts = [_start(prompt) for prompt in llm.prompts]
    changes = sum(one != other for one, other in pairwise(starts[1:]))
    kept = sum(shared(prompt, before) for before, prompt in pairwise(llm.prompts))
    return CallFigures(
        known, max(sizes), sum(sizes) / len(sizes), changes, kept / sum(sizes[1:]), len(llm.summaries)
    )


def _start(prompt: Sequence[Any]) -> Any:
    return prompt[:2]


def run_calls() -> dict[str, CallFigures]:
    """Hold a call for each context and each way, and one whose summaries are never ready in time."""
    found = {
        f"{context} {name}": judge(*hold(context, compress))
        for context in CONTEXTS
        for name, compress in COMPRESSIONS.items()
    }
    return {**found, f"{CONTEXTS[1]} never in time": judge(*hold(CONTEXTS[1], summarise, NEVER_S))}


def calls_table(found: dict[str, CallFigures]) -> Table:
    """Return the table for the terminal."""
    shown = Table(title=f"a call of {MINUTES} minutes", title_justify="left", title_style="bold", box=None)
    for name in ("context", "known", "largest", "mean", "changes", "cached", "summaries"):
        shown.add_column(name, justify="left" if name == "context" else "right", no_wrap=True)
    for name, kept in found.items():
        shown.add_row(
            name,
            f"{kept.known} of {len(LAST_QUESTIONS)}",
            f"{kept.largest}",
            f"{kept.mean:.0f}",
            f"{kept.changes}",
            f"{kept.cached:.0%}",
            f"{kept.summaries}",
        )
    return shown
