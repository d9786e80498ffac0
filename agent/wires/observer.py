"""What follows a call from outside, such as its measurements."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from rejoinder.agent.app.tool_result import ToolReturned
from rejoinder.agent.wires.commands import AddText, RecordingTranscribed, Truncated
from rejoinder.pipeline import Event, Session

log = logging.getLogger(__name__)

Observed = Event | ToolReturned | AddText | RecordingTranscribed | Truncated
"""What an observer takes: the events of the session, except audio, the ends of the agent's tools, words that
the client typed or sent as a recording, and the part of a reply that the client reports as heard."""


class CallObserver(Protocol):
    """Follows one call. Its methods do not wait, and change nothing in the call."""

    def begin(self, session: Session) -> None:
        """Take the session of the call, which begins."""

    def take(self, event: Observed) -> None:
        """Take what happened in the call."""

    def end(self, error: BaseException | None, reason: str) -> None:
        """Take the end of the call. error: what ended it, None for an orderly end. reason: for the log."""


class Observers:
    """Passes what happens in a call on to its observers, and keeps their failures from the call.

    The first failure of an observer is logged. After it, this observer gets the end of the call only: it may
    have to forget the call.
    """

    def __init__(self, *observers: CallObserver) -> None:
        self._all = observers
        self._failed: set[CallObserver] = set()

    def begin(self, session: Session) -> None:
        """Pass on the begin of the call."""
        self._each(lambda observer: observer.begin(session))

    def take(self, event: Observed) -> None:
        """Pass on what happened in the call."""
        self._each(lambda observer: observer.take(event))

    def end(self, error: BaseException | None, reason: str) -> None:
        """Pass on the end of the call."""
        self._each(lambda observer: observer.end(error, reason), last=True)

    def _each(self, step: Callable[[CallObserver], None], last: bool = False) -> None:
        for observer in self._all:
            if observer in self._failed and not last:
                continue
            try:
                step(observer)
            except Exception:
                if observer not in self._failed:
                    log.exception("%s failed, and takes no more of this call", type(observer).__name__)
                self._failed.add(observer)
