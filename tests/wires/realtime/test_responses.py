"""Responses of the Realtime protocol: in text, out of band, and with tool calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.published import conforms

from rejoinder.agent.wires.commands import AddItem, Configure, Interrupt, Respond
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.pipeline import (
    AudioChunk,
    EndOfTurn,
    Entry,
    Options,
    ReplyAudio,
    ReplyCalled,
    ReplyDone,
    ReplyRequest,
    ReplyStarted,
    ReplyText,
    ToolCall,
)

WEATHER = {"type": "function", "name": "weather", "description": "Now.", "parameters": {"type": "object"}}
CHAT_SHAPE = {
    "type": "function",
    "function": {"name": "weather", "description": "Now.", "parameters": {"type": "object"}},
}
CALL = ToolCall("call_1", "weather", '{"city": "Rome"}')


class Wire:
    """A line to the protocol object, each of whose answers has a published type."""

    def __init__(self, can_call: bool = True) -> None:
        self.realtime = Realtime(Options(), can_call=can_call)

    def say(self, type_: str, **fields: Any) -> list[Any]:
        answers = list(self.realtime.receive(json.dumps({"type": type_, **fields})))
        conforms(answers)
        return answers

    def asks(self, **response: Any) -> ReplyRequest:
        (respond,) = self.say("response.create", response=response)
        assert isinstance(respond, Respond), respond
        return respond.request

    def handle(self, *happened: Any) -> list[dict[str, Any]]:
        events = [event for one in happened for event in self.realtime.handle(one)]
        conforms(events)
        return events


def types(events: list[Any]) -> list[str]:
    return [event["type"] for event in events]


def error(answers: list[Any]) -> tuple[str, str | None]:
    (answer,) = answers
    assert answer["type"] == "error", answer
    return answer["error"]["code"], answer["error"]["param"]


def test_written_response_in_the_order_that_clients_expect() -> None:
    wire = Wire()
    configure, updated = wire.say("session.update", session={"output_modalities": ["text"]})
    assert isinstance(configure, Configure) and not configure.options.speaks
    assert updated["session"]["output_modalities"] == ["text"]
    events = wire.handle(
        ReplyStarted(1, speaks=False),
        ReplyText(1, "It is"),
        ReplyText(1, " sunny. "),
        ReplyDone(1, "completed", "It is sunny."),
    )
    assert types(events) == [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
    ]
    assert events[6]["text"] == "It is sunny. "
    response = events[-1]["response"]
    assert response["output_modalities"] == ["text"]
    assert response["output"][0]["content"] == [{"type": "output_text", "text": "It is sunny. "}]
    item = response["output"][0]["id"]
    kept = wire.say("conversation.item.retrieve", item_id=item)[0]["item"]
    assert kept == response["output"][0]
    answers = wire.say("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=0)
    assert error(answers)[0] == "item_truncate_invalid_item_id", "nothing of it was spoken"


def test_one_response_may_be_written_where_others_are_spoken() -> None:
    wire = Wire()
    assert wire.asks(output_modalities=["text"]) == ReplyRequest(speaks=False, tag=1)
    wire.handle(ReplyStarted(1, 1, False), ReplyDone(1, "completed", ""))
    assert wire.asks(instructions="Shout.") == ReplyRequest("Shout.", tag=2)


def test_out_of_band_response_adds_no_item() -> None:
    wire = Wire()
    typed = {
        "type": "message",
        "role": "user",
        "id": "mine",
        "content": [{"type": "input_text", "text": "hi"}],
    }
    wire.say("conversation.item.create", item=typed)
    wire.asks()
    metadata = {"topic": "mood", "é": "ü"}
    given = [{"type": "item_reference", "id": "mine"}, {**typed, "id": "other", "role": "system"}]
    asked = wire.asks(conversation="none", input=given, metadata=metadata, output_modalities=["text"])
    assert asked == ReplyRequest(None, [Entry("user", "hi"), Entry("system", "hi")], False, None, False, 2)
    begun = wire.handle(ReplyStarted(1, 1), ReplyStarted(2, 2, False))
    assert [event["response"]["metadata"] for event in begun] == [None, metadata]
    assert begun[0]["response"]["conversation_id"] and begun[1]["response"]["conversation_id"] is None
    events = wire.handle(
        ReplyText(1, "Hello"), ReplyText(2, "cheerful"), ReplyDone(2, "completed", "cheerful")
    )
    ids = {event["response_id"] for event in events if "response_id" in event}
    assert ids == {event["response"]["id"] for event in begun}
    done = events[-1]["response"]
    assert done["metadata"] == metadata and done["output"][0]["content"][0]["text"] == "cheerful"
    about = [event for event in events if event["type"].startswith("conversation.item")]
    assert len(about) == 1 and about[0]["item"]["id"] != done["output"][0]["id"]
    assert (
        error(wire.say("conversation.item.retrieve", item_id=done["output"][0]["id"]))[0]
        == "item_retrieve_invalid_item_id"
    )
    assert wire.handle(ReplyDone(1, "completed", "Hello"))[-1]["type"] == "response.done"


def test_out_of_band_responses_are_cancelled_by_id_and_limited() -> None:
    wire = Wire()
    for _ in range(4):
        wire.asks(conversation="none")
    assert error(wire.say("response.create", response={"conversation": "none"}))[0] == "too_many_responses"
    created = wire.handle(*(ReplyStarted(turn, turn) for turn in range(1, 5)))
    assert wire.say("response.cancel") == [], "they are not the conversation's"
    assert wire.say("response.cancel", response_id="resp_x") == []
    assert wire.say("response.cancel", response_id=created[1]["response"]["id"]) == [Interrupt(2)]
    (done,) = wire.handle(ReplyDone(2, "cancelled", ""))
    assert done["response"]["status_details"]["reason"] == "client_cancelled"
    wire.asks()
    wire.asks(conversation="none")


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ([{"type": "item_reference", "id": "nowhere"}], "response.input.0.id"),
        ([{"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": "AAAA"}]}], None),
        ("x", "response.input"),
    ],
)
def test_invalid_response_input_is_refused(given: Any, param: str | None) -> None:
    wire = Wire()
    refused = error(wire.say("response.create", response={"input": given}))
    assert refused[1] == (param or "response.input.0.content")
    assert wire.asks(input=[]).prompt == [], "a prompt may be empty"


@settings(max_examples=150)
@given(st.data())
def test_each_response_begins_and_ends_once_in_any_order_of_events(data: st.DataObject) -> None:
    """And so does everything in it, in the right order."""
    wire = Wire()
    asked: list[ReplyRequest] = []
    live: dict[int, ReplyRequest] = {}
    events: list[dict[str, Any]] = []
    acts = st.sampled_from(("create", "beside", "cancel", "start", "guess", "text", "audio", "call", "done"))
    for turn, act in enumerate(data.draw(st.lists(acts, max_size=40)), 1):
        one = data.draw(st.sampled_from(sorted(live))) if live else 0
        match act:
            case "create" | "beside":
                given = {"conversation": "none" if act == "beside" else "auto"}
                answers = wire.say("response.create", response=given)
                asked += [answer.request for answer in answers if isinstance(answer, Respond)]
            case "cancel":
                wire.say("response.cancel")
            case "start" if asked:
                live[turn] = asked.pop(0)
                events += wire.handle(ReplyStarted(turn, live[turn].tag, data.draw(st.booleans())))
            case "guess" if not asked and all(not other.remembered for other in live.values()):
                live[turn] = ReplyRequest()
                events += wire.handle(EndOfTurn("hello", turn), ReplyStarted(turn))
            case "text" if one:
                events += wire.handle(ReplyText(one, "word"))
            case "audio" if one:
                events += wire.handle(ReplyAudio(one, AudioChunk(bytes(960), 24_000)))
            case "call" if one:
                events += wire.handle(ReplyCalled(one, ToolCall(f"call_{turn}", "weather", "{}")))
            case "done" if one:
                del live[one]
                status = data.draw(st.sampled_from(("completed", "cancelled", "failed")))
                events += wire.handle(ReplyDone(one, status, "word", "because"))
    for turn in list(live):
        events += wire.handle(ReplyDone(turn, "completed", ""), ReplyDone(turn, "completed", ""))
    for begin, end in (("response.created", "response.done"), ("response.output_item.added",) * 2):
        begun = [_about(event) for event in events if event["type"] == begin]
        ended = [_about(event) for event in events if event["type"] == end.replace("added", "done")]
        assert sorted(begun) == sorted(ended) and len(set(begun)) == len(begun)
    open_: set[str] = set()
    for event in events:
        if event["type"] == "response.created":
            open_.add(event["response"]["id"])
        elif event["type"] == "response.done":
            open_.remove(event["response"]["id"])
        elif "response_id" in event:
            assert event["response_id"] in open_


def _about(event: dict[str, Any]) -> str:
    found: str = (event.get("response") or event["item"])["id"]
    return found


# --- tools ----------------------------------------------------------------------------------------------


def test_tools_of_the_session_and_of_one_response() -> None:
    wire = Wire()
    configure, updated = wire.say("session.update", session={"tools": [WEATHER], "tool_choice": "required"})
    assert list(configure.options.tools.functions) == [CHAT_SHAPE]
    assert configure.options.tools.choice == "required"
    assert updated["session"]["tools"] == [WEATHER] and updated["session"]["tool_choice"] == "required"
    asked = wire.asks(tool_choice={"type": "function", "name": "weather"}, conversation="none")
    assert asked.tools and asked.tools.choice == {"type": "function", "function": {"name": "weather"}}
    none = wire.asks(tool_choice="none", conversation="none").tools
    assert none is not None and not none.functions
    other = wire.asks(tools=[{"type": "function", "name": "other"}]).tools
    assert other and other.functions == [{"type": "function", "function": {"name": "other"}}]
    assert wire.asks(conversation="none").tools is None, "the session's own"


def test_error_names_models_that_can_call_tools() -> None:
    wire = Wire(can_call=False)
    answers = wire.say("session.update", session={"tools": [WEATHER], "instructions": "x"})
    assert error(answers) == ("tools_not_supported", "session.tools")
    assert "--llm openai:" in answers[0]["error"]["message"]
    assert wire.realtime.options().instructions != "x", "the whole update is refused"
    assert error(wire.say("response.create", response={"tools": [WEATHER]}))[0] == "tools_not_supported"
    assert wire.say("session.update", session={"tools": [WEATHER], "tool_choice": "none"})[1]
    assert wire.say("session.update", session={"tools": [], "tool_choice": "auto"})[1]


@pytest.mark.parametrize(
    ("update", "param"),
    [
        ({"tools": [{"type": "function"}]}, "session.tools.0.name"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "session.tools.0.name"),
        ({"tools": [WEATHER], "tool_choice": "maybe"}, "session.tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "x"}}, "session.tool_choice.name"),
    ],
)
def test_invalid_tool_is_refused_and_its_field_named(update: dict[str, Any], param: str) -> None:
    wire = Wire()
    assert error(wire.say("session.update", session=update))[1] == param


def test_response_that_only_calls() -> None:
    wire = Wire()
    user = wire.handle(EndOfTurn("what is the weather", 16_000))[0]["item_id"]
    events = wire.handle(ReplyStarted(1), ReplyCalled(1, CALL), ReplyDone(1, "completed", ""))
    assert types(events) == [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
    ]
    assert events[1]["item"]["arguments"] == "" and events[1]["output_index"] == 0
    assert events[2]["previous_item_id"] == user
    done = events[4]
    assert (done["call_id"], done["name"], done["arguments"]) == (CALL.id, CALL.name, CALL.arguments)
    (item,) = events[-1]["response"]["output"]
    assert item["type"] == "function_call" and item["status"] == "completed"
    result = {"type": "function_call_output", "call_id": CALL.id, "output": "sunny"}
    add, added, _ = wire.say("conversation.item.create", item=result)
    assert add == AddItem(Entry("tool", "sunny", add.entry.key, call=CALL.id), ("call", CALL.id))
    assert added["previous_item_id"] == item["id"]
    wire.asks()


def test_response_that_speaks_and_then_calls() -> None:
    wire = Wire()
    events = wire.handle(
        ReplyStarted(1),
        ReplyText(1, "Let me see."),
        ReplyAudio(1, AudioChunk(bytes(4800), 24_000)),
        ReplyCalled(1, CALL),
        ReplyCalled(1, ToolCall("call_2", "weather", "{}")),
        ReplyDone(1, "completed", "Let me see."),
    )
    added = [event for event in events if event["type"] == "response.output_item.added"]
    assert [event["output_index"] for event in added] == [0, 1, 2]
    assert types(events).index("response.output_audio.done") < events.index(added[1])
    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["message", "function_call", "function_call"]
    assert types(events).count("response.done") == 1
