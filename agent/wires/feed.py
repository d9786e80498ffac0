"""The caption feed of one call: captions of both sides, turns and interruptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rejoinder.agent.wires.ids import new_id
from rejoinder.pipeline import (
    BudgetReached,
    Channel,
    EndOfTurn,
    Event,
    NothingSaid,
    OverlapEnded,
    OverlapStarted,
    PartialTranscript,
    ReplyCalled,
    ReplyDone,
    ReplyRefused,
    ReplyStarted,
    ReplyText,
    SpeechStarted,
)

MAX_EVENTS = 256
"""Most events that wait for a watcher: about half a minute of a lively call."""
MAX_SHOWN_ID = 128
"""Most characters of an identifier: clients choose those of their calls."""


class Watcher:
    """One client that watches a call.

    Events that it does not take in time are lost; it receives their count.
    """

    def __init__(self) -> None:
        self.events: Channel[dict[str, Any]] = Channel(MAX_EVENTS, "watcher")
        self._lost = 0

    def give(self, event: dict[str, Any], leave: int = 2) -> None:
        """Queue an event if there is room. leave: places to keep free for the last events."""
        if self._lost and self.events.send_nowait({"type": "lost", "count": self._lost}, leave):
            self._lost = 0
        if self._lost or not self.events.send_nowait(event, leave):
            self._lost += 1

    def close(self, event: dict[str, Any]) -> None:
        """Queue the last event, for which there is always room, and close the queue."""
        self.give(event, leave=0)
        self.events.close()


class Feed:
    """The feed of one call. It costs next to nothing while there is no watcher.

    id: the client's identifier of the call, or a new one of ours. wire: the name of its protocol. since: when
    it began, in seconds since the epoch. now: returns seconds of any clock. reason: why the call ended, if
    known.
    """

    def __init__(self, id_: str, wire: str, since: float, now: Callable[[], float]) -> None:
        self.id = id_[:MAX_SHOWN_ID] or new_id("call")
        self.wire = wire
        self.since = since
        self.watchers: set[Watcher] = set()
        self.reason = ""
        self._now = now
        self._began = now()

    def about(self) -> dict[str, Any]:
        """Return the call's entry in a list of calls."""
        return {"id": self.id, "wire": self.wire, "since": round(self.since, 3)}

    def watch(self) -> Watcher:
        """Return a new watcher. Its first event describes the call."""
        watcher = Watcher()
        watcher.give(self._event("session", **self.about()))
        self.watchers.add(watcher)
        return watcher

    def send_event(self, happened: Event) -> None:
        """Send a session event to the watchers."""
        if event := _caption(happened):
            self._give(*event)

    def send_typed(self, role: str, text: str) -> None:
        """Send the watchers what the user typed. The session has no event for that."""
        if role == "user":
            self._give("user.typed", {"text": text})

    def send_heard(self, turn: int, text: str) -> None:
        """Send the watchers the part of a reply that the client reports as heard."""
        self._give("agent.heard", {"turn": turn, "heard": text})

    def end(self) -> None:
        """Send the watchers the end of the call, and drop them."""
        self.reason = self.reason or "the client has left"
        event = self._event("ended", reason=self.reason)  # one: watchers compare what they saw
        for watcher in self.watchers:
            watcher.close(event)
        self.watchers.clear()

    def _give(self, type_: str, fields: dict[str, Any]) -> None:
        event = self._event(type_, **fields) if self.watchers else {}
        for watcher in self.watchers:
            watcher.give(event)

    def _event(self, type_: str, **fields: Any) -> dict[str, Any]:
        return {"type": type_, "at": round(self._now() - self._began, 3), **fields}


def _caption(happened: Event) -> tuple[str, dict[str, Any]] | None:
    """Return the type and the fields of a watcher's event, None where watchers get none."""
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
        case BudgetReached(scope, share, over):
            return "agent.budget", {"scope": scope, "share": share, "over": over}
        case ReplyRefused(turn, reason):
            return "agent.refused", {"turn": turn, "reason": reason}
        case ReplyDone(turn, status, heard, error):
            fields = {"turn": turn, "status": status, "heard": heard}
            return "agent.done", {**fields, "error": error} if error else fields
    return None
