"""The events that are kept for a client that may come back, tested without a socket."""

from __future__ import annotations

import json

from rejoinder.agent.wires.realtime.events import event
from rejoinder.agent.wires.realtime.outbox import MAX_KEPT_BYTES, Outbox
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.resuming import ResumeRequest, catch_up
from rejoinder.pipeline import Options
from rejoinder.pipeline.replying.playout import Playout


def test_events_after_a_kept_event_are_returned_in_order() -> None:
    outbox = Outbox()
    sent = [event("test", number=number) for number in range(5)]
    texts = [outbox.note(one) for one in sent]
    assert [json.loads(text) for text in texts] == sent == list(outbox)
    assert outbox.after(sent[2]["event_id"]) == texts[3:]
    assert outbox.after(sent[4]["event_id"]) == []
    assert outbox.after("event_x") is None and outbox.after("") is None


def test_greeting_does_not_change_the_events_to_resend() -> None:
    outbox = Outbox()
    sent = [event("test", number=number) for number in range(3)]
    texts = [outbox.note(one) for one in sent]
    greeting = [event("hello"), event("again")]
    outbox.greet(sent[0]["event_id"], greeting)
    for one in (sent[0], *greeting):
        assert outbox.after(one["event_id"]) == texts[1:]
    assert list(outbox) == sent


def test_outbox_is_bounded() -> None:
    outbox = Outbox()
    for size in (10, 1_000, 2_560, 300_000, MAX_KEPT_BYTES + 1):
        for _ in range(2 * MAX_KEPT_BYTES // size + 2):
            last = event("test", delta="x" * size)
            outbox.note(last)
            assert outbox.size <= max(MAX_KEPT_BYTES, size + 200)
        assert outbox.after(last["event_id"]) == []
    for _ in range(MAX_KEPT_BYTES // 100):
        outbox.note(last := event("test"))
        outbox.greet(last["event_id"], [event("hello"), event("again")])
    assert outbox.size <= MAX_KEPT_BYTES and len(outbox) < MAX_KEPT_BYTES // 100


def test_invalid_resume_parameters_are_ignored() -> None:
    assert ResumeRequest.of({}) == ResumeRequest("")
    for nonsense in ("", "-1", "1e9", "٣", "9" * 400, "null"):
        asked = {"conversation_id": "conv_1", "last_event_id": "x", "audio_end_ms": nonsense}
        assert ResumeRequest.of(asked) == ResumeRequest("conv_1", "x", "", None)
    assert ResumeRequest.of({"audio_end_ms": "999999999", "item_id": "a"}).played_ms == 24 * 60 * 60 * 1000


def test_client_that_resumes_an_empty_conversation_gets_the_session() -> None:
    wire, outbox = Realtime(Options()), Outbox()
    for one in wire.open():
        outbox.note(one)
    for last in ("", "event_x"):
        missed = catch_up(wire, outbox, ResumeRequest(wire.conversation, last, "item_x", 20), None)
        told = [json.loads(text) for text in missed.messages]
        assert [one["type"] for one in told] == [
            "session.created",
            "conversation.created",
            "rejoinder.resumed",
        ]
        assert told[2]["after"] is None and missed.unheard == {}
    again = catch_up(wire, outbox, ResumeRequest(wire.conversation, told[1]["event_id"]), None)
    assert json.loads(again.messages[-1])["type"] == "rejoinder.resumed", (
        "the rest of the greeting, once more"
    )
    assert json.loads(again.messages[-1])["after"] is None


def test_stopped_clock_plays_nothing_and_goes_on_with_what_is_sent_again() -> None:
    playout = Playout()
    playout.begin("one two three four")
    playout.sent(2.0, now=10.0, words=((0.5, 3), (1.0, 7), (1.5, 13), (2.0, 18)))
    playout.stop(11.0)
    playout.stop(11.4)
    assert playout.played(50.0) == 1.0
    assert playout.text(playout.played(50.0)) == "one two"
    playout.sent_again(1.5, 60.0)
    assert playout.played(60.0) == 0.5 and playout.played(61.0) == 1.5
    assert playout.text(playout.played(70.0)) == "one two three four"
    playout.sent_again(99.0, 80.0)
    assert playout.played(80.0) == 0.0, "no more can be unheard than was sent"
