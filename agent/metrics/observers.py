"""Several observers of one call."""

from __future__ import annotations

from rejoinder.agent.wires.observer import CallObserver, Observed
from rejoinder.pipeline import Session


class Observers:
    """Passes everything on to several observers. The first one counts the traffic; one of them may trace."""

    def __init__(self, first: CallObserver, *others: CallObserver) -> None:
        self.traffic = first.traffic
        self._all = first, *others
        self.traceparent = next(filter(None, (each.traceparent for each in self._all)), "")

    def begin(self, session: Session) -> None:
        """Pass on the begin of the call."""
        for each in self._all:
            each.begin(session)

    def take(self, event: Observed) -> None:
        """Pass on what happened."""
        for each in self._all:
            each.take(event)

    def returned(self, id: str, failed: bool, result: str) -> None:
        """Pass on the end of a tool's run."""
        for each in self._all:
            each.returned(id, failed, result)

    def end(self, error: BaseException | None, reason: str) -> None:
        """Pass on the end of the call."""
        for each in self._all:
            each.end(error, reason)
