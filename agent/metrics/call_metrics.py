"""Follows one call for the metrics."""

from __future__ import annotations

from rejoinder.agent.metrics.measures import CallMeasures, Measurement, error_measure
from rejoinder.agent.metrics.meters import Meters
from rejoinder.agent.wires.observer import Observed
from rejoinder.pipeline import RATE, Session

TOTALS = (
    ("audio_seconds", ("received",)),
    ("guesses", ("kept",)),
    ("guesses", ("dropped",)),
    ("guess_tokens_wasted", ()),
    ("backpressure_seconds", ()),
)
"""The metrics that a session counts itself, and their labels, in the order of ``totals``."""


def totals(session: Session) -> tuple[float, ...]:
    """Return what a session has counted itself since its start."""
    guesses = session.speculation
    counted = (guesses.kept, guesses.dropped, guesses.tokens_wasted)
    return session.received / RATE, *map(float, counted), session.events.waited


class CallMetrics:
    """A ``CallObserver`` that measures one call.

    wire: the bounded name of its protocol. llm: the public name of its language model. live: the running
    calls, with their wires.
    """

    def __init__(self, meters: Meters, wire: str, llm: str, live: dict[CallMetrics, str]) -> None:
        self._meters = meters
        self._wire = wire
        self._live = live
        self._measures = CallMeasures(llm)
        self._session: Session | None = None
        self._counted: tuple[float, ...] = (0.0,) * len(TOTALS)

    def begin(self, session: Session) -> None:
        """Take the session of the call, which begins."""
        self._session = session
        self._live[self] = self._wire
        self._meters.record([Measurement("calls", labels=(self._wire,))])

    def take(self, event: Observed) -> None:
        """Measure what happened in the call."""
        if measured := self._measures.take(event):
            self._meters.record(measured)

    def settle(self) -> None:
        """Count what the session has counted since the last time."""
        if self._session is None:
            return
        before, self._counted = self._counted, totals(self._session)
        self._meters.record(
            Measurement(metric, now - then, labels)
            for (metric, labels), now, then in zip(TOTALS, self._counted, before, strict=True)
            if now > then
        )

    def end(self, error: BaseException | None, reason: str) -> None:
        """Count the rest of the call. error: what ended it, None for an orderly end."""
        self.settle()
        self._session = None
        self._live.pop(self, None)
        if error is not None:
            self._meters.record([error_measure(error), Measurement("failed_calls", labels=(self._wire,))])
