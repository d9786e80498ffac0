"""Measures the time that the rules of a guard take for each clause."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from rejoinder.models.guard.guardrails import guardrails
from rejoinder.models.guard.personal_data import PERSONAL_DATA
from rejoinder.pipeline import Rules
from rejoinder.pipeline.guarding.screening import Screening
from rejoinder.pipeline.replying.text.clauses import ClauseSplitter

GUARD_ROUNDS = 50
"""How often each reply is judged."""
BLOCKED_PHRASES = 2_000
"""Blocked phrases of the full guard."""
GUARDED_REPLIES = (
    "Sure, I can help you with that. Your order left the warehouse this morning, and it should be with you "
    "by Thursday at the latest.",
    "Let me see. The table for four is booked for half past seven, in the name of Miller, by the window.",
    "You can reach us at +1 202 555 0143, or by mail at help.desk@example.com, on all days but Sunday.",
    "The card that ends in 1111 is 4111 1111 1111 1111, and the account is DE89 3704 0044 0532 0130 00.",
    "It costs 1,299 dollars and 50 cents for 12 months from the 3rd of November 2026, or 119 a month.",
    "No. That train was cancelled; the next one leaves at 14:32 from platform 7, and arrives at 17:05.",
    "I'm sorry to hear that. Please turn the power off, wait for ten seconds, and turn it on again.",
    "There are three museums nearby: the old town hall, the mill, and a small one about bees and honey, "
    "which is open until five and free for children under twelve who come with an adult.",
)
"""What an agent says, with and without numbers."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The time of some rules for one clause, in milliseconds."""

    rules: str
    clauses: int
    p50: float
    p95: float
    p99: float
    longest: float


def full_rules(phrases: int = BLOCKED_PHRASES) -> Rules:
    """Return rules of every kind, as many as an operator may want."""
    return guardrails(
        block=[f"word{number} of phrase{number % 50}" for number in range(phrases)] + ["on all fours"],
        patterns={f"pattern {number}": rf"\b(?:secret|token)\W+{number}\b" for number in range(10)},
        redact=PERSONAL_DATA,
        scripts=["latin"],
        max_characters=2_000,
    ).rules


def measured(name: str, rules: Rules, rounds: int = GUARD_ROUNDS) -> Cost:
    """Return what some rules cost for each clause of ``GUARDED_REPLIES``."""
    replies = [_clauses(reply) for reply in GUARDED_REPLIES]
    took = []
    for _ in range(rounds):
        for reply in replies:
            screening = Screening(rules)
            for clause in reply:
                began = time.perf_counter()
                screening.feed(clause)
                took.append(time.perf_counter() - began)
            screening.flush()
    p50, p95, p99, longest = (float(1000.0 * value) for value in np.percentile(took, (50, 95, 99, 100)))
    return Cost(name, len(took), p50, p95, p99, longest)


def _clauses(reply: str) -> list[str]:
    splitter = ClauseSplitter()
    return [*splitter.feed(reply), splitter.flush()]


def costs_table(costs: Sequence[Cost]) -> Table:
    """Return the table of the costs."""
    shown = Table("rules", "clauses", "p50 ms", "p95 ms", "p99 ms", "longest ms", title="rules, per clause")
    for cost in costs:
        times = (f"{value:.3f}" for value in (cost.p50, cost.p95, cost.p99, cost.longest))
        shown.add_row(cost.rules, f"{cost.clauses:,}", *times)
    return shown
