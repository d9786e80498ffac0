"""How a conversation of another process goes on: what is heard, said again, asked and answered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from rejoinder.agent.wires.commands import Respond, Restore
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.restoring import GO_ON_TAG, UNKNOWN_RESULT, saved_entries, saved_position
from rejoinder.pipeline import Entry, History, Options, ReplyDone, ReplyRequest, ReplyStarted
from rejoinder.pipeline.replying.next.position import LOST_CUE, ReplyPosition

SAID = "One two three. Four five six."
CLAUSES = [("One two three.", 0.0, 1.5, ((0.5, 3), (1.0, 7), (1.5, 14))), ("Four five six.", 1.5, None, ())]
ITEM = {
    "id": "item_reply",
    "object": "realtime.item",
    "type": "message",
    "role": "assistant",
    "status": "in_progress",
}
ASKED = {
    "id": "item_user",
    "object": "realtime.item",
    "type": "message",
    "role": "user",
    "status": "completed",
}
ENTRIES = [Entry("user", "Count.", ("user", 16_000)), Entry("assistant", "", ("reply", 3))]


def position(**changes: Any) -> ReplyPosition:
    usual = {"turn": 3, "sent": 2.0, "heard": "One", "before": "", "clauses": CLAUSES, "written": SAID}
    return ReplyPosition(**{**usual, "whole": True, "stopped": False, **changes})


def restored(
    entries: Sequence[Entry] = ENTRIES,
    reply: ReplyPosition | None = None,
    item: str = "",
    played_ms: int | None = None,
    extra: Sequence[tuple[dict[str, Any], Any]] = (),
) -> tuple[Realtime, list[Any]]:
    """Return the wire of a conversation that was saved and read again, and what it answers first."""
    before = Realtime(Options())
    content = [{"type": "input_audio", "transcript": "Count."}]
    before.items.keep({**ASKED, "content": content}, ("user", 16_000))
    before.items.keep({**ITEM, "content": []}, ("reply", 3))
    for kept in extra:
        before.items.keep(*kept)
    saved = json.loads(json.dumps({**before.saved([]), "entries": saved_entries(entries)}))
    wire = Realtime(Options(), conversation=before.conversation)
    wire.restore(saved, json.loads(json.dumps(saved_position(reply))), item, played_ms)
    return wire, list(wire.open())


def requests(answers: Sequence[Any]) -> list[ReplyRequest]:
    return [one.request for one in answers if isinstance(one, Respond)]


def history(answers: Sequence[Any]) -> list[tuple[str, str]]:
    return [(one.role, one.text) for one in answers[0].entries]


@pytest.mark.parametrize(
    ("item", "played_ms", "heard", "rest"),
    [
        ("", None, "One", "two three. Four five six."),
        ("item_reply", 1_100, "One two", "three. Four five six."),
        ("item_reply", 0, "", SAID),
        ("item_other", 1_100, "One", "two three. Four five six."),
    ],
    ids=["by the server's clock", "as the client reports", "nothing was played", "of another item"],
)
def test_rest_is_said_from_the_first_word_that_was_not_heard(
    item: str, played_ms: int | None, heard: str, rest: str
) -> None:
    wire, answers = restored(reply=position(), item=item, played_ms=played_ms)
    assert isinstance(answers[0], Restore)
    assert history(answers) == [("user", "Count."), *([("assistant", heard)] if heard else [])]
    assert [request.words for request in requests(answers)] == [rest]
    assert wire.items.get("item_reply", "", "")["content"][0]["transcript"] == heard


def test_model_is_asked_for_the_words_that_it_had_not_written() -> None:
    wire, answers = restored(reply=position(written="One two three.", whole=False))
    assert [request.words for request in requests(answers)] == ["two three."]
    assert not requests(wire.handle(ReplyStarted(1, GO_ON_TAG)))
    assert [request.cue for request in requests(wire.handle(ReplyDone(1, "completed", "two three.")))] == [
        LOST_CUE
    ]
    assert not requests(wire.handle(ReplyDone(1, "completed", "two three."))), "once"


def test_what_is_due_is_saved_until_its_reply_begins() -> None:
    """A second server that ends loses neither the rest nor what follows it."""
    first = position(written="One two three.", whole=False)
    wire, _ = restored(reply=first)
    assert [each[0] for each in wire.saved([])["due"]] == ["two three.", ""]
    saved = json.loads(json.dumps({**wire.saved([]), "entries": saved_entries(ENTRIES[:1])}))
    later = Realtime(Options(), conversation=wire.conversation)
    later.restore(saved, {})
    assert requests(later.open()) == [ReplyRequest(words="two three.", tag=GO_ON_TAG)]
    wire.handle(ReplyStarted(1, GO_ON_TAG))
    assert [each[2] for each in wire.saved([])["due"]] == [LOST_CUE]


def test_an_interrupted_rest_is_not_continued() -> None:
    wire, _ = restored(reply=position(written="One two three.", whole=False))
    wire.handle(ReplyStarted(1, GO_ON_TAG))
    assert not requests(wire.handle(ReplyDone(1, "cancelled", "two")))
    wire.handle(ReplyStarted(2, GO_ON_TAG))
    assert not requests(wire.handle(ReplyDone(2, "completed", "")))


@pytest.mark.parametrize(
    ("entries", "reply"),
    [
        ([ENTRIES[0], Entry("assistant", "One", ("reply", 3), cut=True)], position(stopped=True)),
        ([*ENTRIES, Entry("user", "Stop.", ("item", "typed"))], position()),
        ([ENTRIES[0], Entry("assistant", SAID, ("reply", 3))], position(heard=SAID)),
    ],
    ids=["the user has cut it off", "the user has typed since", "it was heard to its end"],
)
def test_nothing_is_said_again(entries: list[Entry], reply: ReplyPosition) -> None:
    _, answers = restored(entries, reply)
    assert not requests(answers)


def test_turn_that_ended_is_answered() -> None:
    _, answers = restored(ENTRIES[:1])
    assert requests(answers) == [ReplyRequest(tag=GO_ON_TAG)]


def test_reply_of_which_nothing_is_known_is_asked_for_again() -> None:
    lost = position(sent=0.0, heard="", clauses=[], written="", whole=False, instructions="Sing.")
    _, answers = restored(reply=lost)
    assert requests(answers) == [ReplyRequest(instructions="Sing.", tag=GO_ON_TAG)]


def test_tools_of_the_server_get_a_result_and_those_of_the_client_wait() -> None:
    called = {"id": "item_call", "type": "function_call", "status": "completed", "call_id": "theirs"}
    call = {**called, "object": "realtime.item", "name": "look", "arguments": "{}"}
    entries = [
        ENTRIES[0],
        Entry("call", "{}", ("call", "ours"), call="ours", name="book"),
        Entry("call", "{}", ("call", "theirs"), call="theirs", name="look"),
    ]
    _, answers = restored(entries, extra=[(call, ("call", "theirs"))])
    assert ("tool", UNKNOWN_RESULT) in history(answers)
    new = History()
    new.restore(answers[0].entries)
    assert new.pending == {"theirs"}


def test_new_session_finds_its_own_entries_only() -> None:
    """The new session counts samples and replies from the start, as the old one did."""
    _, answers = restored(reply=position())
    assert [entry.key for entry in answers[0].entries] == [("item", "item_user"), ("item", "item_reply")]


def test_state_in_another_form_is_refused() -> None:
    wire = Realtime(Options())
    with pytest.raises(ValueError, match="it has form 0"):
        wire.restore({**wire.saved([]), "version": 0}, {})
