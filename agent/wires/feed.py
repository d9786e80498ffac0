"""What happens in one call, for whoever watches: captions of both sides, turns and interruptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rejoinder.agent.wires.realtime.events import new_id
from rejoinder.pipeline import (
    Channel,
    EndOfTurn,
    Event,
    NothingSaid,
    OverlapEnded,
    OverlapStarted,
    PartialTranscript,
    ReplyCalled,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    SpeechStarted,
)

MAX_EVENTS = 256
"""Events that wait for a watcher; in a lively call it is some half a minute of them."""
MAX_ID = 128
"""Characters of an identifier: those of calls come from outside."""


class Watcher:
    """One who watches. What it does not take in time is lost, and it is told how much that was."""

    def __init__(self) -> None:
        self.events: Channel[dict[str, Any]] = Channel(MAX_EVENTS, "watcher")
        self._lost = 0

    def give(self, event: dict[str, Any], leave: int = 2) -> None:
        """Put an event in where there is room. leave: places for what is said at the end."""
        if self._lost and self.events.send_nowait({"type": "lost", "count": self._lost}, leave):
            self._lost = 0
        if self._lost or not self.events.send_nowait(event, leave):
            self._lost += 1

    def close(self, event: dict[str, Any]) -> None:
        """Put the last event in, for which there always is room."""
        self.give(event, leave=0)
        self.events.close()


class Feed:
    """One call. Costs next to nothing while nobody watches.

    id: what its client knows it by, or an identifier of ours. wire: how it came. since: seconds since the
    epoch. now: seconds. reason: why it is over, where that was said.
    """

    def __init__(self, id_: str, wire: str, since: float, now: Callable[[], float]) -> None:
        self.id = id_[:MAX_ID] or new_id("call")
        self.wire = wire
        self.since = since
        self.watchers: set[Watcher] = set()
        self.reason = ""
        self._now = now
        self._began = now()

    def about(self) -> dict[str, Any]:
        """Return what a list of calls says of it."""
        return {"id": self.id, "wire": self.wire, "since": round(self.since, 3)}

    def watch(self) -> Watcher:
        """Return a new watcher, which is told first which call it watches."""
        watcher = Watcher()
        watcher.give(self._event("session", **self.about()))
        self.watchers.add(watcher)
        return watcher

    def tell(self, happened: Event) -> None:
        """Tell the watchers what happened in the session."""
        if event := _told(happened):
            self._give(*event)

    def typed(self, role: str, text: str) -> None:
        """Tell the watchers what the user typed instead of speaking, which is no event of the session."""
        if role == "user":
            self._give("user.typed", {"text": text})

    def heard(self, turn: int, text: str) -> None:
        """Tell the watchers how much of a reply was heard, by the client's own account."""
        self._give("agent.heard", {"turn": turn, "heard": text})

    def end(self) -> None:
        """Tell the watchers that the call is over; there are none any more."""
        self.reason = self.reason or "the client has left"
        for watcher in self.watchers:
            watcher.close(self._event("ended", reason=self.reason))
        self.watchers.clear()

    def _give(self, type_: str, fields: dict[str, Any]) -> None:
        event = self._event(type_, **fields) if self.watchers else {}
        for watcher in self.watchers:
            watcher.give(event)

    def _event(self, type_: str, **fields: Any) -> dict[str, Any]:
        return {"type": type_, "at": round(self._now() - self._began, 3), **fields}


def _told(happened: Event) -> tuple[str, dict[str, Any]] | None:
    """Return the kind of event that watchers are told, and its fields; None: it is nothing to them."""
    match happened:
        case SpeechStarted():
            return "user.started", {}
        case PartialTranscript(text):
            return "user.partial", {"text": text}
        case EndOfTurn(text):
            return "user.said", {"text": text}
        case NothingSaid():
            return "user.said", {"text": ""}
        case ReplyStarted(turn):
            return "agent.started", {"turn": turn}
        case ReplyText(turn, text):
            return "agent.says", {"turn": turn, "text": text}
        case OverlapStarted():
            return "agent.paused", {}
        case OverlapEnded(text):
            return "agent.resumed", {"text": text}
        case ReplyCalled(turn, call):
            return "agent.called", {"turn": turn, "name": call.name, "arguments": call.arguments}
        case ReplyDone(turn, status, heard, error):
            told = {"turn": turn, "status": status, "heard": heard}
            return "agent.done", {**told, "error": error} if error else told
    return None
