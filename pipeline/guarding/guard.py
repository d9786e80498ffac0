"""What the clauses of a reply must pass before they are heard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from rejoinder.pipeline.guarding.rules import Rules

Judge = Callable[[str], Awaitable[str]]
"""Judges a reply up to the end of a clause: it returns why the clause is refused, "" to let it pass.

It runs on guesses, too, which may never be heard. So it must not change anything."""

GUARD_WAIT_S = 0.5
"""Default for the longest time that a judge may take, in seconds."""
REFUSAL = "I'm sorry, I can't say that."
"""The sentence in place of a refused clause where none is configured."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What the clauses of a reply must pass before they are heard. One object serves all calls.

    rules: see each clause before it is synthesised.
    judges: see each clause that the rules allow, while it is synthesised. Its audio waits for them.
    wait_s: longest time that a judge may take, in seconds from the time at which the rules allow the clause.
    strict: whether a clause is refused when a judge fails or takes longer; otherwise it passes.
    say: the sentence that replaces a refused clause. The rest of the reply is dropped.
    marks_injection: whether the trace counts turns of the caller that look like a prompt injection.
    identity: what the rules and judges are, as part of the key of a cached answer; "" where that is not
    known, as with functions: then no answer is cached.
    """

    rules: Rules = field(default_factory=Rules)
    judges: Sequence[Judge] = ()
    wait_s: float = GUARD_WAIT_S
    strict: bool = False
    say: str = REFUSAL
    marks_injection: bool = False
    identity: str = ""

    async def aclose(self) -> None:
        """Close the connections of the judges. Cancelling may leave some open."""
        for judge in self.judges:
            if aclose := getattr(judge, "aclose", None):
                await aclose()
