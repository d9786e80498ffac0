"""Follows one call for the metrics."""

from __future__ import annotations

from rejoinder.agent.metrics.measures import CallMeasures, Measurement, error_measure
from rejoinder.agent.metrics.meters import Meters
from rejoinder.agent.wires.observer import Observed
from rejoinder.agent.wires.socket import Traffic
from rejoinder.pipeline import RATE, Session

Totals = tuple[float, float, float, float, float]
"""Totals of a call: seconds of audio received, guesses kept and dropped, tokens wasted, seconds waited."""


class CallMetrics:
    """Measures one call. wire: the bounded name of its protocol. llm: the public name of its language model.

    traffic: that of all calls of its wire. live: the running calls, with their wires.
    """

    def __init__(
        self, meters: Meters, wire: str, llm: str, traffic: Traffic, live: dict[CallMetrics, str]
    ) -> None:
        self.traffic = traffic
        self.traceparent = ""
        self._meters = meters
        self._wire = wire
        self._live = live
        self._measures = CallMeasures(llm)
        self._session: Session | None = None
        self._counted: Totals = (0.0,) * 5

    def begin(self, session: Session) -> None:
        """Take the session of the call, which begins."""
        self._session = session
        self._live[self] = self._wire
        self._meters.record([Measurement("calls", labels=(self._wire,))])

    def take(self, event: Observed) -> None:
        """Measure an event of the session."""
        if measured := self._measures.take(event):
            self._meters.record(measured)

    def returned(self, id: str, failed: bool, result: str) -> None:
        """Do nothing: the traces measure tools."""

    def settle(self) -> None:
        """Count what the session has counted since the last time."""
        if self._session is None:
            return
        session, speculation = self._session, self._session.speculation
        totals = (
            session.received / RATE,
            float(speculation.kept),
            float(speculation.dropped),
            float(speculation.tokens_wasted),
            session.events.waited,
        )
        names = (
            ("audio_seconds", ("received",)),
            ("guesses", ("kept",)),
            ("guesses", ("dropped",)),
            ("guess_tokens_wasted", ()),
            ("backpressure_seconds", ()),
        )
        before, self._counted = self._counted, totals
        self._meters.record(
            Measurement(metric, now - then, labels)
            for (metric, labels), now, then in zip(names, totals, before, strict=True)
            if now > then
        )

    def end(self, error: BaseException | None, reason: str) -> None:
        """Count the rest of the call. error: what ended it, None for an orderly end."""
        self.settle()
        self._session = None
        self._live.pop(self, None)
        if error is not None:
            self._meters.record([error_measure(error), Measurement("failed_calls", labels=(self._wire,))])
