"""Counts replies that failed, and ends a call after some of them."""

from __future__ import annotations

from dataclasses import dataclass

from rejoinder.agent.app.call import Call
from rejoinder.pipeline import Trace


class Failures:
    """Counts the answers of one call that failed in a row.

    Replies with given words are no answers, and a reply that calls a tool is only the begin of one.
    """

    def __init__(self) -> None:
        self._count = 0
        self._no_answers: set[int] = set()
        self._trace: Trace | None = None

    def no_answer(self, turn: int) -> None:
        """Record that a reply speaks given words, or calls a tool."""
        self._no_answers.add(turn)

    def traced(self, trace: Trace) -> None:
        """Take the trace of a reply, which may have an apology in it."""
        self._trace = trace

    def done(self, turn: int, status: str) -> int | None:
        """Record the end of a reply; return how many have failed in a row, None if it does not count.

        An apology that the caller interrupts counts as a failure.
        """
        is_answer = turn not in self._no_answers
        self._no_answers.discard(turn)
        if not is_answer and status != "failed":
            return None
        excused = self._trace is not None and self._trace.turn == turn and "apology" in self._trace.marks
        if status == "cancelled" and not excused:
            return None
        self._count = self._count + 1 if status == "failed" or excused else 0
        return self._count


@dataclass(frozen=True, slots=True)
class GiveUp:
    """A hook for ``Agent.on_failure``: it hangs up once enough replies in a row have failed.

    after: how many. words: said before.
    """

    after: int
    words: str

    async def __call__(self, call: Call, failures: int) -> None:
        """Hang up if it is time, once the words are heard. Cancelling before keeps the call."""
        if failures >= self.after:
            await call.hang_up(say=self.words, reason=f"{failures} replies in a row have failed")
