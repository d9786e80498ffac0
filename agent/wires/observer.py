"""What follows a call from outside: its measurements and its trace."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from rejoinder.agent.wires.commands import AddText, RecordingTranscribed, Truncated
from rejoinder.agent.wires.socket import Traffic
from rejoinder.pipeline import Event, Session

log = logging.getLogger(__name__)

Observed = Event | AddText | RecordingTranscribed | Truncated
"""What an observer takes: events of the session, words that the client typed or sent as a recording, and the
part of a reply that the client reports as heard."""


class CallObserver(Protocol):
    """Follows one call. Its methods do not wait, and change nothing in the call.

    traffic: counts the messages of the call. traceparent: the trace context that requests to other servers
    carry, "" for none.
    """

    traffic: Traffic
    traceparent: str

    def begin(self, session: Session) -> None:
        """Take the session of the call, which begins."""

    def take(self, event: Observed) -> None:
        """Take what happened in the call. Audio comes as ``traffic.spoken`` only."""

    def returned(self, id: str, failed: bool, result: str) -> None:
        """Take the end of a tool's run. id: of its ``ToolCall``. It may come again for the same run."""

    def end(self, error: BaseException | None, reason: str) -> None:
        """Take the end of the call. error: what ended it, None for an orderly end. reason: for the log."""


class NoObserver:
    """Follows nothing: the observer of a call without metrics and traces."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.traceparent = ""

    def begin(self, session: Session) -> None:
        """Do nothing."""

    def take(self, event: Observed) -> None:
        """Do nothing."""

    def returned(self, id: str, failed: bool, result: str) -> None:
        """Do nothing."""

    def end(self, error: BaseException | None, reason: str) -> None:
        """Do nothing."""


class SafeObserver:
    """Passes everything on to another observer until that one fails: the call goes on without it.

    The first failure is logged. Of the rest of the call, the observer gets the end only: it may have to
    forget the call.
    """

    def __init__(self, observer: CallObserver) -> None:
        self.traffic = observer.traffic
        self.traceparent = observer.traceparent
        self._observer = observer
        self._failed = False

    def begin(self, session: Session) -> None:
        """Pass on the begin of the call."""
        self._try(lambda: self._observer.begin(session))

    def take(self, event: Observed) -> None:
        """Pass on an event."""
        self._try(lambda: self._observer.take(event))

    def returned(self, id: str, failed: bool, result: str) -> None:
        """Pass on the end of a tool's run."""
        self._try(lambda: self._observer.returned(id, failed, result))

    def end(self, error: BaseException | None, reason: str) -> None:
        """Pass on the end of the call."""
        self._try(lambda: self._observer.end(error, reason), last=True)

    def _try(self, step: Callable[[], None], last: bool = False) -> None:
        if self._failed and not last:
            return
        try:
            step()
        except Exception:
            if not self._failed:
                log.exception("a call is not measured any further, because an observer failed")
            self._failed = True
