"""The Realtime protocol as a plain object: messages in, commands and events out."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.published import conforms

from rejoinder.agent.wires.commands import Configure, EndTurn, Hear, Respond, Truncate, Truncated
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.pipeline import (
    POINTS,
    AudioChunk,
    EndOfTurn,
    Endpointing,
    Options,
    OverlapEnded,
    OverlapStarted,
    PartialTranscript,
    PauseStarted,
    ReplyAudio,
    ReplyDone,
    ReplyRequest,
    ReplyStarted,
    ReplyText,
    SpeechStarted,
)

PCM = base64.b64encode(b"\x01\x02" * 480).decode()
VALID = [
    {
        "type": "session.update",
        "session": {"instructions": "x", "audio": {"input": {"turn_detection": None}}},
    },
    {"type": "session.update", "session": {"audio": {"input": {"turn_detection": {"type": "server_vad"}}}}},
    {"type": "input_audio_buffer.append", "audio": PCM},
    {"type": "input_audio_buffer.commit"},
    {"type": "input_audio_buffer.clear"},
    {
        "type": "conversation.item.create",
        "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    },
    {
        "type": "conversation.item.create",
        "previous_item_id": "root",
        "item": {
            "type": "message",
            "role": "user",
            "id": "x",
            "content": [{"type": "input_audio", "audio": PCM}],
        },
    },
    {
        "type": "conversation.item.create",
        "item": {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    },
    {
        "type": "conversation.item.create",
        "item": {"type": "function_call_output", "call_id": "c", "output": "1"},
    },
    {"type": "conversation.item.delete", "item_id": "x"},
    {"type": "session.update", "session": {"audio": {"input": {"format": {"type": "audio/pcmu"}}}}},
    {"type": "session.update", "session": {"tools": [{"type": "function", "name": "f"}]}},
    {
        "type": "response.create",
        "response": {
            "conversation": "none",
            "output_modalities": ["text"],
            "input": [{"type": "item_reference", "id": "x"}],
            "tools": [{"type": "function", "name": "f"}],
            "tool_choice": {"type": "function", "name": "f"},
            "audio": {"output": {"format": {"type": "audio/pcma"}}},
        },
    },
    {"type": "conversation.item.retrieve", "item_id": "x"},
    {"type": "conversation.item.truncate", "item_id": "x", "content_index": 0, "audio_end_ms": 5},
    {"type": "response.create", "response": {"metadata": {"a": "b"}}},
    {"type": "response.cancel"},
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def wire() -> Realtime:
    return Realtime(Options(instructions="be kind"), can_call=True)


def say(realtime: Realtime, type_: str, **fields: Any) -> list[Any]:
    return list(realtime.receive(json.dumps({"type": type_, **fields})))


def types(answers: list[Any]) -> list[str]:
    return [answer["type"] if isinstance(answer, dict) else type(answer).__name__ for answer in answers]


def orderly(answers: list[Any]) -> None:
    """Check that answers are commands and published events, and an error is one of the protocol's shape."""
    answers = list(answers)
    conforms(answers)
    for answer in answers:
        if isinstance(answer, dict) and answer["type"] == "error":
            assert set(answer["error"]) == {"type", "code", "message", "param", "event_id"}
            json.dumps(answer)


@given(st.text())
def test_no_text_raises(text: str) -> None:
    answers = list(wire().receive(text))
    orderly(answers)
    assert types(answers) == ["error"]


@settings(max_examples=300)
@given(st.data())
def test_no_mutation_of_a_message_raises(data: st.DataObject) -> None:
    realtime = wire()
    for message in data.draw(st.lists(st.sampled_from(VALID), min_size=1, max_size=6)):
        changed: dict[str, Any] = json.loads(json.dumps(message))
        if data.draw(st.booleans()):
            target = changed
            while data.draw(st.booleans()) and (inner := [v for v in target.values() if isinstance(v, dict)]):
                target = inner[0]
            target[data.draw(st.sampled_from([*target, "new"]))] = data.draw(JSON)
        orderly(realtime.receive(json.dumps(changed)))


@pytest.mark.parametrize("interruptible", [True, False])
def test_clients_do_not_drop_what_must_be_heard(interruptible: bool) -> None:
    """They drop their audio at ``speech_started``, unless they said that speech does not interrupt."""
    realtime = wire()
    detection = {"type": "server_vad", "interrupt_response": interruptible}
    audio = {"input": {"turn_detection": detection}}
    say(realtime, "session.update", session={"type": "realtime", "audio": audio})
    began = types(realtime.handle(SpeechStarted(16_000, interrupts=False)))
    assert began == ([] if interruptible else ["input_audio_buffer.speech_started"])
    assert "input_audio_buffer.committed" in types(realtime.handle(EndOfTurn("What is it?", 32_000)))


def test_spoken_turn_in_the_order_that_clients_expect() -> None:
    realtime = wire()
    assert types(realtime.open()) == ["session.created", "conversation.created"]
    (started,) = realtime.handle(SpeechStarted(16_000))
    assert started["audio_start_ms"] == 1000 - 300
    assert realtime.handle(PauseStarted(20_000)) == []
    (delta,) = realtime.handle(PartialTranscript("what is", "what"))
    assert delta["delta"] == "what" and delta["item_id"] == started["item_id"]
    ended = realtime.handle(EndOfTurn("What is it?", 32_000))
    assert types(ended) == [
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.completed",
    ]
    assert ended[0]["audio_end_ms"] == 2000 and ended[-1]["transcript"] == "What is it?"
    assert {event.get("item_id", started["item_id"]) for event in ended} == {started["item_id"]}
    assert types(realtime.handle(ReplyStarted(1))) == ["response.created"]
    began = realtime.handle(ReplyText(1, "It"))
    assert types(began) == [
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
    ]
    assert began[1]["previous_item_id"] == started["item_id"]
    assert types(realtime.handle(ReplyText(1, "is"))) == ["response.output_audio_transcript.delta"]
    (audio,) = realtime.handle(ReplyAudio(1, AudioChunk(b"\x01\x02" * 960, 24_000)))
    assert base64.b64decode(audio["delta"]) == b"\x01\x02" * 960
    done = realtime.handle(ReplyDone(1, "completed", "It is"))
    assert types(done) == [
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
    ]
    assert realtime.handle(ReplyDone(1, "completed", "It is")) == [], "response.done comes exactly once"


def test_voice_at_another_rate_loses_no_audio() -> None:
    realtime = wire()
    realtime.handle(ReplyStarted(1))
    sent = [realtime.handle(ReplyAudio(1, AudioChunk(b"\x00\x10" * 882, 22_050))) for _ in range(25)]
    sent.append(realtime.handle(ReplyDone(1, "completed", "")))
    audio = [event for events in sent for event in events if event["type"] == "response.output_audio.delta"]
    assert abs(sum(len(base64.b64decode(event["delta"])) for event in audio) // 2 - 24_000) <= 24
    assert base64.b64decode(audio[0]["delta"]), "the first chunk is not held back"


def test_lower_eagerness_waits_longer() -> None:
    found = []
    for eagerness in ("high", "medium", "low"):
        detection = {"type": "semantic_vad", "eagerness": eagerness}
        configure, _ = say(
            wire(), "session.update", session={"audio": {"input": {"turn_detection": detection}}}
        )
        assert isinstance(configure, Configure)
        endpointing = configure.options.endpointing
        found.append((endpointing.patience, endpointing.unsure_wait_ms, endpointing.max_wait_ms))
    points = [POINTS[name] for name in ("eager", "balanced", "patient")]
    assert found == [(one.patience, one.unsure_wait_ms, one.max_wait_ms) for one in points]
    assert found == sorted(found) and len(set(found)) == 3


def test_eagerness_on_a_server_that_waits_long_is_no_error() -> None:
    realtime = Realtime(Options(endpointing=Endpointing(min_wait_ms=2_500, max_wait_ms=4_000)))
    detection = {"type": "semantic_vad", "eagerness": "high"}
    configure, _ = say(
        realtime, "session.update", session={"audio": {"input": {"turn_detection": detection}}}
    )
    assert configure.options.endpointing.max_wait_ms == 2_500


def test_update_is_merged_echoed_and_changes_the_session() -> None:
    realtime = wire()
    detection = {"type": "server_vad", "silence_duration_ms": 700}
    configure, updated = say(
        realtime, "session.update", session={"audio": {"input": {"turn_detection": detection}}}
    )
    assert isinstance(configure, Configure)
    assert configure.options.endpointing.min_wait_ms == configure.options.endpointing.max_wait_ms == 700
    effective = updated["session"]["audio"]["input"]["turn_detection"]
    assert effective["interrupt_response"] is True and effective["silence_duration_ms"] == 700
    assert updated["session"]["instructions"] == "be kind"
    (refused,) = say(realtime, "session.update", event_id="mine", session={"audio": {"output": {"speed": 9}}})
    assert (
        refused["error"]["event_id"] == "mine" and refused["error"]["param"] == "session.audio.output.speed"
    )
    _, again = say(realtime, "session.update", session={})
    assert again["session"] == updated["session"]


@pytest.mark.parametrize(
    "update",
    [
        {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 16000}}}},
        {"audio": {"output": {"format": {"type": "audio/opus"}}}},
        {"output_modalities": ["text", "audio"]},
        {"tools": [{"type": "mcp", "server_label": "x"}]},
    ],
)
def test_unsupported_settings_are_refused(update: dict[str, Any]) -> None:
    assert types(say(wire(), "session.update", session=update)) == ["error"]


def test_manual_turns() -> None:
    realtime = wire()
    say(realtime, "session.update", session={"audio": {"input": {"turn_detection": None}}})
    assert types(say(realtime, "input_audio_buffer.commit")) == ["error"]
    (heard,) = say(realtime, "input_audio_buffer.append", audio=PCM)
    assert isinstance(heard, Hear)
    assert say(realtime, "input_audio_buffer.commit") == [EndTurn()]
    assert types(realtime.handle(EndOfTurn("hi", 480)))[0] == "input_audio_buffer.committed"
    (respond,) = say(realtime, "response.create", response={"metadata": {"k": "v"}})
    assert respond == Respond(ReplyRequest(tag=1))
    assert types(say(realtime, "response.create")) == ["error"]
    (created, *_) = realtime.handle(ReplyStarted(1, tag=1))
    assert created["response"]["metadata"] == {"k": "v"}
    assert types(say(realtime, "response.cancel")) == ["Interrupt"]
    realtime.handle(ReplyDone(1, "cancelled", ""))
    assert say(realtime, "response.cancel") == [], "there is nothing to cancel, and that is no error"


def test_audio_is_held_only_for_messages_already_received() -> None:
    append = json.dumps({"type": "input_audio_buffer.append", "audio": PCM})
    one, many = wire(), wire()
    alone = [command for _ in range(6) for command in one.receive(append)]
    assert [list(many.receive(append, more=True)) for _ in range(5)] == [[]] * 5
    (heard,) = many.receive(append)
    assert heard == Hear(b"".join(command.pcm for command in alone if isinstance(command, Hear)))
    assert not list(many.receive(append, more=True))
    bad = json.dumps({"type": "input_audio_buffer.append", "audio": "no base64"})
    heard, error = many.receive(bad, more=True)
    assert isinstance(heard, Hear) and heard.pcm and error["type"] == "error"
    assert not list(many.receive(append, more=True))
    before, _, _ = many.receive(json.dumps({"type": "input_audio_buffer.clear"}), more=True)
    assert isinstance(before, Hear) and before.pcm, "it came before the command"
    assert not list(many.receive(append, more=True))
    before, error = many.receive(b"binary", more=True)
    assert isinstance(before, Hear) and error["type"] == "error"
    minutes = json.dumps(
        {"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(48_000)).decode()}
    )
    assert list(many.receive(minutes, more=True)), "what is long enough does not wait"


def test_item_keeps_only_the_heard_text() -> None:
    realtime = wire()
    realtime.handle(ReplyStarted(1))
    added = realtime.handle(ReplyText(1, "One two three."))[0]["item"]["id"]
    realtime.handle(ReplyAudio(1, AudioChunk(bytes(24_000), 24_000)))
    realtime.handle(ReplyDone(1, "cancelled", "One two"))
    answers = say(realtime, "conversation.item.truncate", item_id=added, content_index=0, audio_end_ms=400)
    assert answers[0] == Truncate(1, 0.4) and answers[1]["type"] == "conversation.item.truncated"
    realtime.handle(Truncated(1, "One"))
    (retrieved,) = say(realtime, "conversation.item.retrieve", item_id=added)
    assert retrieved["item"]["content"][0]["transcript"] == "One"
    assert retrieved["item"]["status"] == "incomplete"


def test_clients_that_hold_their_audio_receive_pauses() -> None:
    realtime = Realtime(Options(holds_audio=True))
    realtime.handle(ReplyStarted(1))
    item = realtime.handle(ReplyText(1, "Well"))[0]["item"]["id"]
    (paused,) = realtime.handle(OverlapStarted(16_000))
    (resumed,) = realtime.handle(OverlapEnded("Mm-hm."))
    assert (paused["type"], paused["item_id"]) == ("rejoinder.output_paused", item)
    assert (resumed["type"], resumed["item_id"]) == ("rejoinder.output_resumed", item)
    assert resumed["transcript"] == "Mm-hm."
    assert types(say(realtime, "session.update", session={"instructions": "x"}))[0] == "Configure"
    assert realtime.options().holds_audio


def test_other_clients_receive_interruptions_only() -> None:
    """At speech_started they throw their audio away, so it has to be true."""
    realtime = wire()
    realtime.handle(ReplyStarted(1))
    assert realtime.handle(OverlapStarted(16_000)) == realtime.handle(OverlapEnded("Mm-hm.")) == []
    assert types(realtime.handle(SpeechStarted(16_000))) == ["input_audio_buffer.speech_started"]


@pytest.mark.parametrize(
    "detection",
    [{"type": "server_vad"}, {"type": "semantic_vad", "eagerness": "low"}, {"type": "semantic_vad"}],
)
def test_unset_options_keep_the_servers_values(detection: dict[str, Any]) -> None:
    realtime = Realtime(Options(endpointing=Endpointing(assertiveness=0.9)))
    update = {"audio": {"input": {"turn_detection": detection}}}
    assert types(say(realtime, "session.update", session=update)) == ["Configure", "session.updated"]
    assert realtime.options().endpointing.assertiveness == 0.9
