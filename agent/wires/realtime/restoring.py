"""A conversation that another process has begun: what is saved of it, and how it goes on.

All functions return finished lists and do no I/O. ``VERSION`` changes with the form of what is saved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rejoinder.agent.wires.commands import Respond, Restore
from rejoinder.agent.wires.realtime.events import ServerEvent, event, resumed
from rejoinder.agent.wires.realtime.items import Items
from rejoinder.agent.wires.wire import Answers
from rejoinder.pipeline import Entry, Event, Key, ReplyDone, ReplyRequest, ReplyStarted
from rejoinder.pipeline.replying.next.position import ReplyPosition

VERSION = 1
"""The form of what is saved. A server does not read another one."""
GO_ON_TAG = -2
"""Tag of the replies that go on with a conversation. Those of clients are positive, and an agent's own -1."""
UNKNOWN_RESULT = (
    "(The server was restarted while this tool ran. Whether it has taken effect is unknown: do not call it "
    "again before the caller agrees.)"
)
"""The result of a tool of the server that ran when the process ended."""
SavedItem = tuple[dict[str, Any], Key | None]
"""An item, and its key in the history."""


def saved_entries(entries: Sequence[Entry]) -> list[list[Any]]:
    """Return the entries of a history in the form in which they are saved."""
    return [[each.role, each.text, each.key, each.cut, each.call, each.name] for each in entries]


def saved_position(position: ReplyPosition | None) -> dict[str, Any]:
    """Return the position of the newest reply in the form in which it is saved."""
    return {} if position is None else asdict(position)


@dataclass
class Restoration:
    """A conversation as it was saved, and the requests with which the agent goes on.

    items, entries: what both sides heard. open: the ids of the responses that were in progress. requests:
    for the rest of the reply that was not heard to its end, or for an answer that is due.
    """

    items: list[SavedItem] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    open: Sequence[str] = ()
    requests: list[ReplyRequest] = field(default_factory=list)
    _turn: int | None = None

    def begin(self, conversation: str, greeting: Sequence[ServerEvent], items: Items) -> Answers:
        """Put the items into a new conversation, and return what follows on its first socket."""
        for item, key in self.items:
            items.keep(item, key)
        ended = [event("response.done", response=_ended(id_, conversation)) for id_ in self.open]
        known = [*greeting, resumed(conversation, None, None, 0), *items.as_events(None), *ended]
        return [Restore(self.entries), *known, *self._respond()]

    @property
    def due(self) -> list[list[Any]]:
        """The requests whose replies have not begun, in the form in which they are saved."""
        return [[each.words, each.instructions, each.cue, each.speaks] for each in self.requests]

    def follow(self, happened: Event) -> list[Respond]:
        """Take an event of a reply; return the next request once the one before it is done.

        A reply that the user stops ends the list: the user's words are answered.
        """
        match happened:
            case ReplyStarted(turn, tag) if tag == GO_ON_TAG:
                self._turn = turn
                del self.requests[:1]
            case ReplyDone(turn, status) if turn == self._turn:
                self._turn = None
                if status == "completed":
                    return self._respond()
                self.requests.clear()
        return []

    def _respond(self) -> list[Respond]:
        return [Respond(replace(self.requests[0], tag=GO_ON_TAG))] if self.requests else []


def restoration(
    saved: Mapping[str, Any], reply: Mapping[str, Any], item: str, played_ms: int | None, answers: bool
) -> Restoration:
    """Return a saved conversation. Raises LookupError, TypeError and ValueError for what cannot be one.

    saved, reply: the state of the conversation and the position of its newest reply. item, played_ms: the
    item that the client played last and how much of it, None where unknown; then the position counts, and
    what was played after it counts as unheard. answers: whether the agent answers each turn by itself.
    """
    position = _position(reply)
    entries = [
        Entry(role, text, _key(key), cut, call, name) for role, text, key, cut, call, name in saved["entries"]
    ]
    items: list[SavedItem] = [(dict(each), _key(key)) for each, key in saved["items"]]
    requests: list[ReplyRequest] = []
    place = _place(entries, position)
    if position and place is not None and not position.stopped:
        known = _item_of(items, position)
        reported = played_ms is not None and known is not None and item == known["id"]
        heard = position.heard_until((played_ms or 0) / 1000.0) if reported else position.heard
        said_later = any(entry.role == "user" for entry in entries[place + 1 :])
        requests = [] if said_later else position.requests(heard)
        entries[place].text, entries[place].cut = heard, False
        if known is not None:
            _rewrite(known, heard, whole=not requests)
    if place is None or not any(entry.role == "user" for entry in entries[place + 1 :]):
        requests += [_request(*each) for each in saved.get("due", ())]
    answered = _answer_calls(entries, items)
    if not requests and entries and answers and _is_spoken(entries[-1]):
        requests = [ReplyRequest()]  # the turn ended, and its reply had not begun
    elif answered and (not requests or requests[-1].words):
        requests.append(ReplyRequest())
    return _with_new_keys(items, entries, saved["open"], requests)


def _position(saved: Mapping[str, Any]) -> ReplyPosition | None:
    if not saved:
        return None
    clauses = [
        (text, start, end, tuple((seconds, characters) for seconds, characters in words))
        for text, start, end, words in saved["clauses"]
    ]
    return ReplyPosition(**{**saved, "clauses": clauses})


def _request(words: str, instructions: str | None, cue: str, speaks: bool | None) -> ReplyRequest:
    return ReplyRequest(instructions=instructions, speaks=speaks, cue=cue, words=words)


def _key(saved: list[Any] | None) -> Key | None:
    return None if saved is None else (saved[0], saved[1])


def _place(entries: Sequence[Entry], position: ReplyPosition | None) -> int | None:
    """Return the index of the reply's entry, None where it is not in the history."""
    key = ("reply", position.turn) if position else None
    return next((at for at, entry in enumerate(entries) if key and entry.key == key), None)


def _item_of(items: Sequence[SavedItem], position: ReplyPosition) -> dict[str, Any] | None:
    """Return the item that the reply speaks, None for one that had not begun to."""
    return next((item for item, key in items if key == ("reply", position.turn)), None)


def _rewrite(item: dict[str, Any], heard: str, whole: bool) -> None:
    """Reduce a message to its heard words."""
    spoken = not any("text" in part for part in item["content"])
    part = {"type": "output_audio", "transcript": heard} if spoken else {"type": "output_text", "text": heard}
    item["content"] = [part]
    item["status"] = "completed" if whole else "incomplete"


def _is_spoken(entry: Entry) -> bool:
    """Return whether an entry is a turn that the user has spoken."""
    return entry.role == "user" and entry.key is not None and entry.key[0] == "user"


def _answer_calls(entries: list[Entry], items: Sequence[SavedItem]) -> bool:
    """Add a result to each call whose run ended with the process; return whether the agent has to speak.

    The calls of the client's tools are left alone: the client runs them, and returns their results.
    """
    own = {item["call_id"] for item, _ in items if item["type"] == "function_call"}
    returned = {entry.call for entry in entries if entry.role == "tool"}
    for at, entry in reversed(list(enumerate(entries))):
        if entry.role == "call" and entry.call not in own | returned:
            result = Entry("tool", UNKNOWN_RESULT, ("item", f"result-{entry.call}"), call=entry.call)
            entries.insert(at + 1, result)
    spoken = [entry for entry in entries if entry.text]
    return bool(spoken) and spoken[-1].role == "tool" and spoken[-1].call not in own


def _with_new_keys(
    items: list[SavedItem], entries: list[Entry], open_: Sequence[str], requests: list[ReplyRequest]
) -> Restoration:
    """Return the restoration with keys that the new session does not make: it counts from the start."""
    new: dict[Key, Key] = {}
    for item, key in items:
        if key is not None and key[0] in ("user", "reply"):
            new[key] = ("item", item["id"])
    renamed: list[SavedItem] = [(item, new.get(key, key) if key else None) for item, key in items]
    for entry in entries:
        if entry.key is not None and entry.key[0] in ("user", "reply"):
            entry.key = new.get(entry.key)
    spoken = [entry for entry in entries if entry.text or entry.role in ("call", "tool")]
    return Restoration(renamed, spoken, open_, requests)


def _ended(id_: str, conversation: str) -> ServerEvent:
    """Return a response that ended with the process in which it was in progress."""
    return {
        "id": id_,
        "object": "realtime.response",
        "status": "cancelled",
        "status_details": {"type": "cancelled", "reason": "turn_detected"},
        "output": [],
        "output_modalities": ["audio"],
        "conversation_id": conversation,
        "metadata": None,
        "usage": None,
    }
