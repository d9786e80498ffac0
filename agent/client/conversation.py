"""What a client knows of a conversation, without I/O: where to resume it, and what to send again."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import Any

from rejoinder.agent.client.events import (
    CallEvent,
    Failed,
    Other,
    Raw,
    ReplyDone,
    ReplyStarted,
    broken_off,
    read,
)
from rejoinder.agent.client.socket import CallLost
from rejoinder.agent.wires.merging import merged

ITEMS = 100
"""Most items that wait for the server's confirmation; some servers confirm none."""
ACTIVE = "conversation_already_has_active_response"
"""Error code: a reply is already in progress."""
NOT_FOUND = "conversation_not_found"
"""Error code: the server no longer has the conversation to resume."""
DOUBLE = "item_create_duplicate_item_id"
"""Error code: the server already has the item."""
ADDING = "add_"
"""Prefix of the ids of events that add an item; such an event may be sent twice."""
EXPIRED = "session_expired"
"""Error code: the session has reached its time limit."""


class Conversation:
    """Reads the server's messages, and remembers what a new socket needs.

    session: the last state that the server sent. over: why the call ended, "" while it goes on. id,
    last_event: name the place at which the conversation resumes, "" if unknown. due: whether the reply that
    was requested last has to be requested again now. position: returns the item that was played last and how
    many milliseconds of it, counted over the newest socket that has sent it; None where unknown.
    """

    def __init__(self) -> None:
        self.position: Callable[[], tuple[str, int] | None] = lambda: None
        self.session: Raw = {}
        self.over = self.id = self.last_event = ""
        self.due = False
        self._refused = False  # the reply that was requested last, because another one was in progress
        self._request = ""
        self._configured: Raw = {}
        self._replies: list[str] = []  # begun, and not done
        self._items: dict[str, str] = {}
        self._resent = ("", 0)

    # --- to the server ----------------------------------------------------------------------------------

    def add(self, item: Raw) -> str:
        """Return the message that adds an item. It is sent again until the server confirms it."""
        if len(self._items) == ITEMS:
            del self._items[next(iter(self._items))]
        id_ = f"item_{secrets.token_hex(10)}"
        event = {"type": "conversation.item.create", "event_id": ADDING + id_, "item": {"id": id_, **item}}
        self._items[id_] = message = json.dumps(event)
        return message

    def respond(self, response: dict[str, Any]) -> str:
        """Return the message that requests a reply. response: fields of the protocol."""
        event = {"type": "response.create", "response": response} if response else {"type": "response.create"}
        self._request, self._refused = json.dumps(event), False
        return self._request

    def update(self, session: Raw) -> str:
        """Return the message that changes the session, and remember the change for a new conversation."""
        update = {"type": "realtime", **session}
        self._configured = merged(self._configured, update)
        return json.dumps({"type": "session.update", "session": update})

    # --- from the server --------------------------------------------------------------------------------

    def take(self, message: str | bytes) -> CallEvent | None:
        """Return the event of a message, or None for an event that only the client itself needs.

        Raises CallLost if the message breaks the protocol.
        """
        try:
            raw: Raw = json.loads(message)
            event = read(raw)
        except (ValueError, TypeError, KeyError) as error:
            raise CallLost(f"the server sent an event that breaks the protocol: {error!r}", 1002) from error
        self.last_event = raw.get("event_id", "")
        match event:
            case Other("session.updated"):
                self.session = raw["session"]
            case Other("conversation.created"):
                self.id = raw["conversation"].get("id", "")
            case Failed(code=code) if code == ACTIVE and self._request:
                self._refused = True
                return None
            case Failed(code=code) if code == NOT_FOUND:
                return None
            case Failed(code=code) if (raw["error"].get("event_id") or "").startswith(ADDING):
                self._items.pop(raw["error"]["event_id"].removeprefix(ADDING), None)
                return None if code == DOUBLE else event
            case Other("conversation.item.added" | "conversation.item.created"):
                self._items.pop(raw["item"].get("id"), None)
            case Failed(message, code) if code == EXPIRED:
                self.over = message
            case ReplyStarted(reply) if reply not in self._replies:
                self._replies.append(reply)
            case ReplyDone(reply):
                self._replies = [other for other in self._replies if other != reply]
                self.due, self._refused = self._refused or self.due, False
        return event

    # --- over another socket ----------------------------------------------------------------------------

    def resumed_by(self, hello: Raw) -> bool:
        """Return whether a server's greeting continues this conversation."""
        return bool(self.session) and hello["session"].get("id") == self.session.get("id")

    def resent(self, item: str, start_ms: int) -> None:
        """Remember that the server sends an item again, from this position on."""
        self._resent = item, start_ms

    def played(self) -> tuple[str, int] | None:
        """Return the item that was played last, and how many milliseconds of it, None where unknown."""
        if (position := self.position()) is None:
            return None
        item, ms = position
        return item, ms + (self._resent[1] if item == self._resent[0] else 0)

    def start_again(self, hello: Raw) -> list[str]:
        """Forget the old conversation, and return the messages that configure the new one like it."""
        self.id, self.last_event = "", hello.get("event_id", "")
        self._refused = self.due = False
        if not self._configured:
            return []
        return [json.dumps({"type": "session.update", "session": self._configured})]

    def unconfirmed(self) -> list[str]:
        """Return the messages of the added items that the server has not confirmed."""
        return list(self._items.values())

    def break_off(self, reason: str) -> list[CallEvent]:
        """Forget the replies in progress, and return their ends, as a server would send them."""
        ends = [broken_off(reply, reason) for reply in self._replies]
        self._replies.clear()
        return ends

    @property
    def request(self) -> str:
        """The message that requested a reply last, "" if there was none."""
        return self._request
