"""The items of a conversation in the OpenAI Realtime protocol: what was said, by id and in order."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from rejoinder.agent.realtime_events import ResponseEvents
from rejoinder.pipeline import ProtocolError

MAX_ITEMS = 400
"""Items that can be retrieved and truncated; the oldest are forgotten."""


class Items:
    """The items of one connection, and the responses that spoke some of them."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._responses: OrderedDict[str, ResponseEvents] = OrderedDict()

    def __contains__(self, id_: str) -> bool:
        return id_ in self._items

    @property
    def last(self) -> str | None:
        """The id of the newest item."""
        return next(reversed(self._items), None)

    @property
    def last_spoken(self) -> str | None:
        """The id of the newest item that a response speaks or spoke."""
        return next(reversed(self._responses), None)

    def get(self, id_: str) -> dict[str, Any]:
        """Return an item. Raises ProtocolError where there is none."""
        if id_ not in self._items:
            raise ProtocolError(f"there is no item {id_}", "item_not_found", "item_id")
        return self._items[id_]

    def spoken(self, id_: str) -> ResponseEvents:
        """Return the response that spoke an item. Raises ProtocolError where there is none."""
        if id_ not in self._responses:
            raise ProtocolError(f"there is no spoken item {id_}", "item_not_found", "item_id")
        return self._responses[id_]

    def keep(self, item: dict[str, Any]) -> dict[str, Any]:
        """Keep an item, in its old place where it has one."""
        self._items[item["id"]] = item
        if len(self._items) > MAX_ITEMS:
            self._items.popitem(last=False)
        return item

    def begin(self, turn: int, metadata: dict[str, str] | None) -> ResponseEvents:
        """Return a new response, whose item is the newest from now on."""
        response = ResponseEvents(turn, self.last, metadata)
        self._responses[response.item_id] = response
        self.keep(response.item("in_progress"))
        if len(self._responses) > MAX_ITEMS:
            self._responses.popitem(last=False)
        return response

    def heard(self, turn: int, text: str) -> None:
        """Note what the user heard of a reply by the client's account: what its item holds from now on."""
        for response in self._responses.values():
            if response.turn == turn:
                response.corrected = True
                self._rewrite(response, text)

    def settle(self, response: ResponseEvents, text: str) -> None:
        """Note what the user heard of a response that ended, unless the client knew better already."""
        if not response.corrected:
            self._rewrite(response, text)

    def _rewrite(self, response: ResponseEvents, text: str) -> None:
        response.cut = response.cut or text != response.transcript
        response.transcript = text
        self.keep(response.item("incomplete" if response.cut else "completed"))
