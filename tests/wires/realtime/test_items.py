"""Inserting and deleting items of the Realtime protocol: client, server and history keep the same order."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.published import conforms

from rejoinder.agent.wires.commands import AddItem, AddRecording, RecordingTranscribed, Remove
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.pipeline import EndOfTurn, Event, History, Options, ReplyDone, ReplyStarted, ReplyText

CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city":"Rome"}'}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}


def message(text: str, role: str = "user", **fields: Any) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}], **fields}


class Client:
    """A client that keeps the conversation as the events say, on a line to a history that obeys commands."""

    def __init__(self) -> None:
        self.wire = Realtime(Options())
        self.history = History()
        self.order: list[str] = []
        self.pending: list[Event] = []

    def say(self, type_: str, **fields: Any) -> list[Any]:
        answers = list(self.wire.receive(json.dumps({"type": type_, **fields})))
        for answer in answers:
            match answer:
                case AddItem(entry, after):
                    self.history.insert(entry, after)
                case Remove(key):
                    self.history.remove(key)
        self.note(answers)
        return answers

    def create(self, item: dict[str, Any], **fields: Any) -> list[Any]:
        return self.say("conversation.item.create", item=item, **fields)

    def hear(self, text: str, at: int) -> None:
        """The session has a turn. The wire gets the event later."""
        self.history.add_user(text, ("user", at))
        self.pending.append(EndOfTurn(text, at))

    def reply(self, text: str, turn: int) -> None:
        self.history.begin_reply(turn)
        self.history.settle(turn, text, cut=False)
        self.pending += [ReplyStarted(turn), ReplyText(turn, text), ReplyDone(turn, "completed", text)]

    def deliver(self) -> None:
        for happened in self.pending:
            self.note(self.wire.handle(happened))
        self.pending = []

    def note(self, answers: list[Any]) -> None:
        conforms(answers)
        for answer in answers:
            if isinstance(answer, dict) and answer["type"] == "conversation.item.added":
                previous = answer["previous_item_id"]
                place = self.order.index(previous) + 1 if previous else 0
                self.order.insert(place, answer["item"]["id"])
            if isinstance(answer, dict) and answer["type"] == "conversation.item.deleted":
                self.order.remove(answer["item_id"])

    def words(self) -> list[str]:
        """Return the conversation as the server says it when it is asked for each item."""
        items = [self.say("conversation.item.retrieve", item_id=id_)[0]["item"] for id_ in self.order]
        parts = [item["content"][0] for item in items]
        return [part.get("text") or part.get("transcript") for part in parts]

    def remembered(self) -> list[str]:
        return [entry.text for entry in self.history.entries if entry.text]


def error(answers: list[Any]) -> tuple[str, str | None]:
    (answer,) = answers
    assert answer["type"] == "error"
    return answer["error"]["code"], answer["error"]["param"]


@settings(max_examples=200)
@given(st.data())
def test_client_server_and_history_agree(data: st.DataObject) -> None:
    client = Client()
    for number in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(("create", "create", "delete", "hear", "reply", "deliver"))):
            case "create":
                previous = data.draw(st.sampled_from([None, "root", *client.order]))
                role = data.draw(st.sampled_from(("user", "assistant", "system")))
                client.create(message(f"typed {number}", role), previous_item_id=previous)
            case "delete" if client.order:
                client.say("conversation.item.delete", item_id=data.draw(st.sampled_from(client.order)))
            case "hear":
                client.hear(f"said {number}", at=16_000 * (number + 1))
            case "reply":
                client.reply(f"answer {number}", turn=number + 1)
            case "deliver":
                client.deliver()
    client.deliver()
    assert client.words() == client.remembered()


def test_noise_between_items_has_no_history_entry() -> None:
    client = Client()
    client.create(message("one", id="one"))
    client.note(client.wire.handle(EndOfTurn("", 16_000)))
    noise = client.order[-1]
    client.create(message("three"))
    client.create(message("two"), previous_item_id=noise)
    assert client.remembered() == ["one", "two", "three"]
    client.say("conversation.item.delete", item_id=noise)
    assert client.words() == ["one", "two", "three"]


def test_deleted_reply_does_not_return_to_the_history() -> None:
    client = Client()
    client.reply("Once upon a time", turn=1)
    client.deliver()
    (item,) = client.order
    assert error(client.say("conversation.item.delete", item_id="other"))[0] == "item_delete_invalid_item_id"
    client.say("conversation.item.delete", item_id=item)
    assert not client.history.settle(1, "Once upon", cut=True)
    assert client.remembered() == client.words() == []
    assert error(client.say("conversation.item.retrieve", item_id=item)) == (
        "item_retrieve_invalid_item_id",
        "item_id",
    )


def test_tool_calls_and_results_are_items() -> None:
    client = Client()
    assert error(client.create(RESULT)) == ("invalid_tool_call_id", "item.call_id")
    client.create(message("what is the weather in Rome?"))
    client.create({**CALL, "id": "mine"})
    assert error(client.create(CALL)) == ("invalid_tool_call_id", "item.call_id")
    client.create(RESULT)
    asked, called, told = client.history.messages()
    assert asked["role"] == "user"
    assert called["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
    ]
    assert told == {"role": "tool", "content": "sunny", "tool_call_id": "call_1"}
    client.say("conversation.item.delete", item_id="mine")
    assert client.history.messages() == [asked], "a result without its call is in no prompt"


def test_audio_with_a_transcript_is_kept_as_text() -> None:
    client = Client()
    part = {"type": "input_audio", "transcript": "hello", "audio": base64.b64encode(bytes(960)).decode()}
    added = client.create({"type": "message", "role": "user", "content": [part]})[1]
    assert added["item"]["content"] == [{"type": "input_audio", "transcript": "hello"}]
    spoken = {"type": "output_audio", "transcript": "Hi."}
    client.create({"type": "message", "role": "assistant", "content": [spoken]})
    assert client.remembered() == client.words() == ["hello", "Hi."]


def test_audio_without_a_transcript_is_transcribed() -> None:
    client = Client()
    part = {"type": "input_audio", "audio": base64.b64encode(bytes(48_000)).decode()}
    added, command = client.create({"type": "message", "role": "user", "content": [part], "id": "mine"})
    assert added["type"] == "conversation.item.added" and added["item"]["status"] == "in_progress"
    assert isinstance(command, AddRecording) and command.key == ("item", "mine")
    assert len(command.pcm) == pytest.approx(2 * 16_000, abs=64), "it is 16 kHz from here on"
    done, completed = client.wire.handle(RecordingTranscribed(command.key, "hello", 1.0))
    conforms([done, completed])
    assert done["item"]["content"] == [{"type": "input_audio", "transcript": "hello"}]
    assert completed["type"] == "conversation.item.input_audio_transcription.completed"
    assert client.words() == ["hello"]
    (_, failed) = client.wire.handle(RecordingTranscribed(command.key, "", 1.0, "out of order"))
    conforms([failed])
    assert failed["error"]["message"] == "out of order"
    client.say("conversation.item.delete", item_id="mine")
    assert client.wire.handle(RecordingTranscribed(command.key, "late", 1.0)) == []


BAD = [
    (message("x", content=[]), "item.content"),
    (message("x", content=[{"type": "input_text"}]), "item.content.0"),
    (message("x", content=[{"type": "input_image", "image_url": "data:"}]), "item.content.0.type"),
    (message("x", content=[{"type": "input_audio", "audio": "?"}]), "item.content.0.audio"),
    (message("x", content=[{"type": "input_audio", "audio": "AAAAAA=="}] * 2), "item.content"),
    (message("x", "system", content=[{"type": "input_audio", "audio": "AAAAAA=="}]), "item.content"),
    (message("x", "robot"), "item.role"),
    ({**CALL, "call_id": "a/b"}, "item.call_id"),
    ({"type": "function_call_output", "call_id": "call_1"}, "item.output"),
    ({"type": "item_reference", "id": "x"}, "item.type"),
]


@pytest.mark.parametrize(("item", "param"), BAD)
def test_invalid_item_is_refused_and_its_field_named(item: dict[str, Any], param: str) -> None:
    client = Client()
    assert error(client.create(item))[1] == param
    assert client.order == [] and client.remembered() == []
