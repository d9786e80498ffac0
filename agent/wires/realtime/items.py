"""The items of a conversation in the OpenAI Realtime protocol: messages and tool calls, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rejoinder.agent.wires.commands import AddItem, AddRecording, Command, RecordingTranscribed, Remove
from rejoinder.agent.wires.ids import new_id
from rejoinder.agent.wires.realtime.events import ServerEvent, event, item_added, kept_item, transcribed
from rejoinder.agent.wires.realtime.messages import ItemCreate
from rejoinder.agent.wires.realtime.shapes import (
    CallItem,
    Input,
    MessageItem,
    Reference,
    ResultItem,
)
from rejoinder.pipeline import Entry, Key, ProtocolError

MAX_ITEMS = 400
"""Most items that are kept, equal to the most entries of the history. The oldest are dropped."""
ROOT = "root"
"""The client's name for the place before the first item."""


@dataclass(slots=True)
class Kept:
    """An item and its key in the history; None for noise, which has no entry there."""

    item: dict[str, Any]
    key: Key | None = None


class Items:
    """The items of one conversation. They set the order of the history."""

    def __init__(self) -> None:
        self._items: dict[str, Kept] = {}
        self._order: list[str] = []

    def __contains__(self, id_: str) -> bool:
        return id_ in self._items

    @property
    def last(self) -> str | None:
        """The id of the item at the end."""
        return self._order[-1] if self._order else None

    def get(self, id_: str, code: str, doing: str, param: str = "item_id") -> dict[str, Any]:
        """Return an item. Raises ProtocolError with OpenAI's message, which clients look for.

        code: of the error. doing: the verb in its message. param: the field that names the item.
        """
        if id_ not in self._items:
            reason = f"Error {doing} item: the item with id '{id_}' does not exist."
            raise ProtocolError(reason, code, param)
        return self._items[id_].item

    def keep(self, item: dict[str, Any], key: Key | None) -> str | None:
        """Append an item; return the id of the one before it."""
        previous = self.last
        self._put(len(self._order), Kept(item, key))
        return previous

    def rewrite(self, item: dict[str, Any]) -> None:
        """Replace the item that has the same id, if it is still kept."""
        if item["id"] in self._items:
            self._items[item["id"]].item = item

    def saved(self) -> list[tuple[dict[str, Any], Key | None]]:
        """Return all items with their keys, in order."""
        return [(kept.item, kept.key) for kept in map(self._items.__getitem__, self._order)]

    def as_events(self, without: str | None) -> list[ServerEvent]:
        """Return the events that add all items, except the one with the id ``without``."""
        events = []
        for previous, id_ in zip([None, *self._order], self._order, strict=False):
            if id_ != without:
                item = self._items[id_].item
                both = item_added(item, previous)
                events += both[:1] if item["status"] == "in_progress" else both
        return events

    # --- what clients want done -------------------------------------------------------------------------

    def create(self, message: ItemCreate, to_pcm: Callable[[str], bytes]) -> list[Command | ServerEvent]:
        """Insert an item where the client asks for it. Raises ProtocolError."""
        given = message.item
        id_ = given.id or new_id("item")
        if id_ in self._items:
            raise ProtocolError(f"there is an item {id_} already", "item_create_duplicate_item_id", "item.id")
        if isinstance(given, CallItem | ResultItem):
            self._check_call(given)
        place = self._place(message.previous_item_id)
        recording = given.recording if isinstance(given, MessageItem) else None
        pcm = to_pcm(recording) if recording else b""
        key, after = ("item", id_), self._key_before(place)
        previous = self._order[place - 1] if place else None
        item = kept_item(id_, "in_progress" if recording else "completed", given.as_item())
        self._put(place, Kept(item, key))
        if recording:
            added = event("conversation.item.added", item=item, previous_item_id=previous)
            return [added, AddRecording(pcm, key, after)]
        return [AddItem(given.entry(key), after), *item_added(item, previous)]

    def transcribed(self, result: RecordingTranscribed) -> list[ServerEvent]:
        """Return the events with the transcript of an item's audio, or with the error that prevented it."""
        id_ = str(result.key[1])
        if id_ not in self._items:
            return []
        item = {**self._items[id_].item, "status": "completed"}
        item["content"] = [{"type": "input_audio", "transcript": result.text}]
        self.rewrite(item)
        place = self._order.index(id_)
        previous = self._order[place - 1] if place else None
        done = event("conversation.item.done", item=item, previous_item_id=previous)
        return [done, transcribed(id_, result.text, result.seconds, result.error)]

    def delete(self, id_: str) -> list[Command | ServerEvent]:
        """Remove an item from the conversation. Raises ProtocolError where it does not exist."""
        self.get(id_, "item_delete_invalid_item_id", "deleting")
        key = self._items.pop(id_).key
        self._order.remove(id_)
        deleted = event("conversation.item.deleted", item_id=id_)
        return [Remove(key), deleted] if key else [deleted]

    def prompt(self, given: list[Input]) -> list[Entry]:
        """Return the history entries of a response's own input. Raises ProtocolError."""
        entries = []
        for number, item in enumerate(given):
            param = f"response.input.{number}"
            if isinstance(item, Reference):
                entries.append(_entry(self.get(item.id, "item_not_found", "reading", f"{param}.id")))
                continue
            if isinstance(item, MessageItem) and item.recording is not None:
                raise ProtocolError("audio needs its transcript here", "invalid_value", f"{param}.content")
            entries.append(item.entry())
        return entries

    # --- where things are -------------------------------------------------------------------------------

    def _check_call(self, given: CallItem | ResultItem) -> None:
        items = [kept.item for kept in self._items.values()]
        called = [item for item in items if item["type"] == "function_call"]
        known = any(item["call_id"] == given.call_id for item in called)
        if known and isinstance(given, CallItem):
            reason = f"there is a tool call {given.call_id} already"
            raise ProtocolError(reason, "invalid_tool_call_id", "item.call_id")
        if not known and isinstance(given, ResultItem):
            reason = f"Tool call ID '{given.call_id}' not found in conversation."
            raise ProtocolError(reason, "invalid_tool_call_id", "item.call_id")

    def _place(self, previous: str | None) -> int:
        if not previous:  # clients send "" for none
            return len(self._order)
        if previous == ROOT:
            return 0
        if previous not in self._items:
            raise ProtocolError(f"there is no item {previous}", "invalid_value", "previous_item_id")
        return self._order.index(previous) + 1

    def _key_before(self, place: int) -> Key | None:
        keys = (self._items[id_].key for id_ in reversed(self._order[:place]))
        return next((key for key in keys if key), None)

    def _put(self, place: int, kept: Kept) -> None:
        id_ = kept.item["id"]
        self._items[id_] = kept
        self._order.insert(place, id_)
        if len(self._order) > MAX_ITEMS:
            del self._items[self._order.pop(0)]


def _entry(item: dict[str, Any]) -> Entry:
    """Return the history entry of an item."""
    match item["type"]:
        case "function_call":
            return Entry("call", item["arguments"], call=item["call_id"], name=item["name"])
        case "function_call_output":
            return Entry("tool", item["output"], call=item["call_id"])
    words = (part.get("text") or part.get("transcript") for part in item["content"])
    return Entry(item["role"], " ".join(filter(None, words)))
