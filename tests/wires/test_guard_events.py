"""What each wire tells of a refused clause."""

from __future__ import annotations

import time

import pytest

from rejoinder.agent.wires.feed import Feed
from rejoinder.agent.wires.pcm.protocol import Pcm
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.pipeline import Event, Options, ReplyDone, ReplyRefused, ReplyStarted, ReplyText

EVENTS: list[Event] = [
    ReplyStarted(1),
    ReplyText(1, "Fine."),
    ReplyRefused(1, "block"),
    ReplyText(1, "Sorry."),
    ReplyDone(1, "incomplete", "Fine. Sorry.", refused="block"),
]


def test_raw_audio_has_a_message() -> None:
    wire = Pcm(Options())
    sent = [message for event in EVENTS for message in wire.handle(event) if isinstance(message, dict)]
    assert sent[2] == {"type": "reply_refused", "turn": 1, "reason": "block"}
    assert [message["type"] for message in sent] == [
        "reply_started", "reply_text", "reply_refused", "reply_text", "reply_ended",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "refused", "details"),
    [
        ("incomplete", "block", {"type": "incomplete", "reason": "content_filter"}),
        ("incomplete", "", {"type": "incomplete", "reason": "max_output_tokens"}),
        ("cancelled", "block", {"type": "cancelled", "reason": "turn_detected"}),
        ("completed", "", None),
    ],
)
def test_realtime_has_openais_reason(status: str, refused: str, details: object) -> None:
    wire = Realtime(Options())
    for event in EVENTS[:4]:
        wire.handle(event)
    done = wire.handle(ReplyDone(1, status, "Fine. Sorry.", refused=refused))
    (response,) = [each["response"] for each in done if isinstance(each, dict) and "response" in each]
    assert (response["status"], response["status_details"]) == (status, details)


def test_watchers_have_an_event() -> None:
    feed = Feed("a", "pcm", 0.0, time.monotonic)
    watcher = feed.watch()
    feed.send_event(EVENTS[2])
    _, told = watcher.events.receive_nowait(2)
    assert (told["type"], told["turn"], told["reason"]) == ("agent.refused", 1, "block")
