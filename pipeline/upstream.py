"""What a language model tells the reply that asks it, beside the words."""

from __future__ import annotations

from contextvars import ContextVar

from rejoinder.pipeline.interfaces import Usage
from rejoinder.pipeline.trace import Trace


class Upstream:
    """Takes what is reported about one reply, and writes it into its trace.

    usage: the tokens as the model's server counted them; None while it has not said.
    """

    def __init__(self, trace: Trace) -> None:
        self.usage: Usage | None = None
        self._trace = trace

    def answers(self, model: str) -> None:
        """Record that the words come from this model from now on."""
        if model not in self._trace.models:
            self._trace.models.append(model)

    def happened(self, what: str, mark: str, now: float) -> None:
        """Count an event, such as "hedges", and mark its first time."""
        self._trace.count({what: 1})
        self._trace.mark(mark, now)

    def used(self, usage: Usage, cost: float = 0.0) -> None:
        """Add the tokens of one request. cost: their price, 0 where it is unknown."""
        before = self.usage or Usage(0, 0)
        self.usage = Usage(before.read + usage.read, before.written + usage.written)
        if cost:
            self._trace.count({"cost": cost})


upstream: ContextVar[Upstream | None] = ContextVar("upstream", default=None)
"""Takes what is reported about the current task's reply; None for a request that no reply made."""
