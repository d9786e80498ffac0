"""Realtime clients whose messages are scrambled, driven without sockets."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

from support.published import conforms
from support.scrambled.frames import Frame

from rejoinder.agent.wires.commands import (
    AddRecording,
    Configure,
    EndTurn,
    Interrupt,
    RecordingTranscribed,
    Remove,
    Respond,
    Truncate,
    Truncated,
)
from rejoinder.agent.wires.realtime.items import MAX_ITEMS
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.pipeline import (
    AudioChunk,
    EndOfTurn,
    Event,
    NobodySpoke,
    NothingSaid,
    Options,
    OverlapEnded,
    OverlapStarted,
    PartialTranscript,
    ReplyAudio,
    ReplyCalled,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    SpeechStarted,
    ToolCall,
)

PCM = base64.b64encode(b"\x01\x02" * 480).decode()

TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


def typed(id_: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "id": id_, "content": [{"type": "input_text", "text": text}]}


SCRIPT: list[dict[str, Any]] = [
    {"type": "session.update", "session": {"tools": [TOOL], "max_output_tokens": 50}},
    {"type": "conversation.item.create", "item": typed("one", "hello")},
    {"type": "conversation.item.create", "item": typed("two", "there"), "previous_item_id": "one"},
    {"type": "response.create", "response": {"instructions": "Shout."}},
    {"type": "response.cancel"},
    {"type": "conversation.item.truncate", "item_id": "SPOKEN", "content_index": 0, "audio_end_ms": 30},
    {"type": "input_audio_buffer.append", "audio": PCM},
    {"type": "input_audio_buffer.append", "audio": PCM},
    {"type": "input_audio_buffer.commit"},
    {"type": "response.create", "response": {"conversation": "none", "input": [typed("three", "aside")]}},
    {
        "type": "conversation.item.create",
        "item": {"type": "function_call_output", "call_id": "c", "output": "1"},
    },
    {
        "type": "conversation.item.create",
        "item": {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": PCM}]},
    },
    {"type": "session.update", "session": {"audio": {"input": {"turn_detection": None}}}},
    {"type": "input_audio_buffer.clear"},
    {"type": "conversation.item.retrieve", "item_id": "SPOKEN"},
    {"type": "conversation.item.delete", "item_id": "one"},
    {"type": "session.update", "session": {"audio": {"output": {"format": {"type": "audio/pcmu"}}}}},
    {"type": "response.create"},
]  # fmt: skip

ACTS = ["begin", "text", "audio", "call", "finish", "cut", "fail", "words", "noise", "speech", "partial"]


class Line:
    """A connection, and a simulated session that executes commands and emits events at random times."""

    def __init__(self) -> None:
        self.wire = Realtime(Options(), can_call=True)
        self.requested: list[int] = []
        self.live: list[int] = []
        self.turns = 0
        self.spoken = "none"
        self.events: list[dict[str, Any]] = []
        self.note(self.wire.open())

    def say(self, frame: Frame) -> None:
        frame = frame.replace("SPOKEN", self.spoken) if isinstance(frame, str) else frame
        before = len(self.events)
        commands = self.note(self.wire.receive(frame))
        types = [event["type"] for event in self.events[before:]]
        assert "error" not in types or (types == ["error"] and not commands), "an error changes nothing"
        for command in commands:
            match command:
                case Respond(wanted):
                    assert wanted is not None
                    self.requested.append(wanted.tag)
                case Interrupt(out_of_band):
                    for turn in [out_of_band] if out_of_band is not None else self.live[:1]:
                        self.end(turn, "cancelled")
                case Truncate(turn, seconds):
                    assert 0.0 <= seconds
                    assert self.note(self.wire.handle(Truncated(turn, ""))) == []
                case AddRecording(pcm, key):
                    assert pcm
                    self.note(self.wire.handle(RecordingTranscribed(key, "words", 0.02)))
                case Configure(options):
                    assert 0 <= options.max_tokens <= 4096
                case EndTurn():
                    self.tell(EndOfTurn("committed", 16_000))
                case Remove(key):
                    assert key

    def happen(self, act: str) -> None:
        one = self.live[0] if self.live else 0
        match act:
            case "begin":
                self.turns += 1
                self.live.append(self.turns)
                self.tell(ReplyStarted(self.turns, self.requested.pop(0) if self.requested else 0))
            case "text" if one:
                self.tell(ReplyText(one, "word"))
            case "audio" if one:
                self.tell(ReplyAudio(one, AudioChunk(bytes(1920), 24_000)))
            case "call" if one:
                self.tell(ReplyCalled(one, ToolCall(f"call_{len(self.events)}", "weather", "{}")))
            case "finish" | "cut" | "fail" if one:
                self.end(one, {"finish": "completed", "cut": "cancelled", "fail": "failed"}[act])
            case "words":
                self.tell(EndOfTurn("some words", 32_000))
            case "noise":
                self.tell(NothingSaid(32_000))
            case "speech":
                self.tell(SpeechStarted(16_000))
            case "partial":
                self.tell(PartialTranscript("some words", "some"))
            case "doubt":
                self.tell(OverlapStarted(16_000))
            case "no doubt":
                self.tell(OverlapEnded("mm-hm"))
            case "silence":
                self.tell(NobodySpoke(0, 16_000))

    def end(self, turn: int, status: str) -> None:
        if turn in self.live:
            self.live.remove(turn)
            self.tell(ReplyDone(turn, status, "word", "because" if status == "failed" else ""))

    def tell(self, event: Event) -> None:
        assert self.note(self.wire.handle(event)) == []

    def note(self, answers: Iterable[Any]) -> list[Any]:
        given = list(answers)
        events = [one for one in given if isinstance(one, dict)]
        conforms(events)
        for one in events:
            json.dumps(one, allow_nan=False).encode()
            item = one.get("item")
            if one["type"] == "conversation.item.added" and item.get("role") == "assistant":
                self.spoken = item["id"]
        self.events += events
        return [one for one in given if not isinstance(one, dict)]


def check_items(line: Line) -> None:
    """The client received each item of the server exactly once."""
    known: dict[str, bool] = {}
    for event in line.events:
        if event["type"] == "conversation.item.added":
            id_, previous = event["item"]["id"], event["previous_item_id"]
            assert not known.get(id_), f"{id_} was added twice"
            assert previous is None or known[previous], "it stands behind one that is there"
            known[id_] = True
        elif event["type"] == "conversation.item.deleted":
            assert known[event["item_id"]]
            known[event["item_id"]] = False
    assert len(known) < MAX_ITEMS
    for id_, there in known.items():
        (answer,) = line.wire.receive(json.dumps({"type": "conversation.item.retrieve", "item_id": id_}))
        assert isinstance(answer, dict)
        assert answer["type"] == ("conversation.item.retrieved" if there else "error")


def check_responses(events: list[dict[str, Any]]) -> None:
    """Each response begins and ends once, and all of its events lie in between."""
    open_: set[str] = set()
    over: set[str] = set()
    for event in events:
        if event["type"] == "response.created":
            open_.add(event["response"]["id"])
        elif event["type"] == "response.done":
            open_.remove(event["response"]["id"])
            over.add(event["response"]["id"])
        elif "response_id" in event:
            assert event["response_id"] in open_, "it is over, or has not begun"
    assert not open_ and len(over) == sum(event["type"] == "response.done" for event in events)
