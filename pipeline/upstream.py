"""What a language model and the reply that asks it tell each other beside the words.

And the trace context that requests to its server carry (https://www.w3.org/TR/trace-context/#traceparent-header).
"""

from __future__ import annotations

import secrets
from contextvars import ContextVar

from rejoinder.pipeline.budget import CallBudget
from rejoinder.pipeline.interfaces import Usage
from rejoinder.pipeline.trace import Trace


class Upstream:
    """Takes what is reported about one reply, and writes it into its trace.

    spoken: whether a voice speaks the reply. needs_words: whether an answer without words is a fault. usage:
    the tokens as the model's server counted them; None while it has not said. stood_in: whether words came
    from another model than the one that usually answers.

    budget: of the call, which the reply's requests are counted for; None for none. counted: whether one was.

    What a model may be chosen by: language: of the recogniser, "" if unknown. load: share of its time that
    the busiest engine spends on pressing work. key: SHA-256 of the API key of the call, "" for none.
    """

    def __init__(self, trace: Trace, spoken: bool = False, needs_words: bool = False) -> None:
        self.spoken = spoken
        self.needs_words = needs_words
        self.usage: Usage | None = None
        self.budget: CallBudget | None = None
        self.counted = False
        self.stood_in = False
        self.language = self.key = ""
        self.load = 0.0
        self._trace = trace
        self._breaks = False

    @property
    def said(self) -> str:
        """The user's words that the reply answers, "" if it answers the history as it stands."""
        return self._trace.said

    def routed(self, model: str, reason: str) -> None:
        """Record which model a rule has chosen, "" for none, and why."""
        self._trace.route = {"model": model, "reason": reason} if model else {"reason": reason}

    def answers(self, model: str, first_word: float | None, stands_in: bool = False) -> None:
        """Record that the words come from this model from now on.

        first_word: loop time of its first one. stands_in: whether another one usually answers.
        """
        self.stood_in = self.stood_in or stands_in
        if first_word is not None:
            self._trace.mark("first_token", first_word)
        if model not in self._trace.models:
            self._trace.models.append(model)

    def opened(self, now: float) -> None:
        """Record that the next piece only opens the answer. A clause ends with it: the rest may take long."""
        self._breaks = self.stood_in = True
        self.happened("openings", "opened", now)

    def take_break(self) -> bool:
        """Return whether ``opened`` was called since the last call of this method."""
        taken, self._breaks = self._breaks, False
        return taken

    def happened(self, what: str, mark: str, now: float) -> None:
        """Count an event, such as "hedges", and mark its first time."""
        self._trace.count({what: 1})
        self._trace.mark(mark, now)

    def traceparent(self, call: str) -> str:
        """Return the trace context of the reply's requests, which share one span below that of the call."""
        self._trace.request = self._trace.request or secrets.token_hex(8)
        version, trace, _, flags = call.split("-")
        return f"{version}-{trace}-{self._trace.request}-{flags}"

    def used(self, usage: Usage, cost: float = 0.0) -> None:
        """Add the tokens of one request. cost: their price, 0 where it is unknown."""
        self._spend(usage, cost)
        tokens = {"tokens_read": usage.read, "tokens_written": usage.written, "tokens_cached": usage.cached}
        self._trace.count(tokens)
        before = self.usage or Usage(0, 0)
        self.usage = Usage(
            before.read + usage.read, before.written + usage.written, before.cached + usage.cached
        )
        if cost:
            self._trace.count({"cost": cost})

    def used_about(self, usage: Usage, cost: float = 0.0) -> None:
        """Count the tokens of a request that ended before its server said what it used, as estimated."""
        self._spend(usage, cost)
        if cost:
            self._trace.count({"cost": cost})

    def _spend(self, usage: Usage, cost: float) -> None:
        self.counted = True
        if self.budget:
            self.budget.spend(usage.read + usage.written, cost)


upstream: ContextVar[Upstream | None] = ContextVar("upstream", default=None)
"""Takes what is reported about the current task's reply; None for a request that no reply made."""
call_context: ContextVar[str] = ContextVar("call_context", default="")
"""The trace context of the current call or request, as in the header ``traceparent``; "" for none."""


def traceparent() -> str:
    """Return the trace context for a request that the current task makes, "" for none."""
    reply, call = upstream.get(), call_context.get()
    return reply.traceparent(call) if reply and call else call
