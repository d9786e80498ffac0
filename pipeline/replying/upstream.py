"""What a language model and the reply that asks it tell each other beside the words.

And the trace context that requests to its server carry (https://www.w3.org/TR/trace-context/#traceparent-header).
"""

from __future__ import annotations

import secrets
from contextvars import ContextVar

from rejoinder.pipeline.interfaces import Usage
from rejoinder.pipeline.trace import Trace


class Upstream:
    """Takes the reports about one reply, and writes them into its trace.

    usage: the tokens as the model's server counted them; None while it has not told them.
    stood_in: whether words came from another model than the first of a list.
    key: hash of the API key that the call counts for, "" for none. recogniser: the spec of the speech
        recogniser, which says the language; "" if unknown. load: share of its time that the busiest engine
        spends on pressing work. speaks: whether the words are for the voice.
    """

    def __init__(self, trace: Trace) -> None:
        self.usage: Usage | None = None
        self.stood_in = False
        self.key = ""
        self.recogniser = ""
        self.load = 0.0
        self.speaks = False
        self._breaks = False
        self._trace = trace

    def answers(self, model: str, stands_in: bool = False) -> None:
        """Record that the words come from this model from now on.

        stands_in: whether it is not the first one of a list.
        """
        self.stood_in = self.stood_in or stands_in
        if model not in self._trace.models:
            self._trace.models.append(model)

    def routed(self, model: str, reason: str, passing: bool) -> None:
        """Record which model a router has chosen, and why.

        passing: whether another hour or load could choose a better one. A cache keeps no such answer.
        """
        self.stood_in = self.stood_in or passing
        self._trace.route = {"model": model, "reason": reason}

    @property
    def said(self) -> str:
        """The user's words that the reply answers, "" if it answers the history as it stands."""
        return self._trace.said

    def opened(self, now: float) -> None:
        """Record that the next piece only opens the answer. A clause ends with it: the rest may take long.

        A cache does not keep such an answer.
        """
        self.stood_in = self._breaks = True
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

    def used(self, read: int, written: int, cost: float = 0.0) -> None:
        """Add the tokens of one request. cost: their price, 0 where it is unknown."""
        before = self.usage or Usage(0, 0)
        self.usage = Usage(before.read + read, before.written + written)
        if cost:
            self._trace.count({"cost": cost})


upstream: ContextVar[Upstream | None] = ContextVar("upstream", default=None)
"""Takes the reports about the current task's reply; None for a request that no reply made."""
call_context: ContextVar[str] = ContextVar("call_context", default="")
"""The trace context of the current call or request, as in the header ``traceparent``; "" for none."""


def traceparent() -> str:
    """Return the trace context for a request that the current task makes, "" for none."""
    reply, call = upstream.get(), call_context.get()
    return reply.traceparent(call) if reply and call else call
