"""Client errors and races, tested on the protocol object alone."""

import base64
import json
from typing import Any

import pytest

from rejoinder.agent.wires.commands import (
    AddItem,
    Configure,
    EndTurn,
    Forget,
    Hear,
    Interrupt,
    ReadMore,
    Respond,
    Truncate,
    Truncated,
)
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.pipeline import (
    AudioChunk,
    EndOfTurn,
    Entry,
    NothingSaid,
    Options,
    ReplyAudio,
    ReplyDone,
    ReplyRequest,
    ReplyStarted,
    ReplyText,
    SpeechStarted,
)

PCM = base64.b64encode(b"\x01\x02" * 480).decode()
MANUAL = {"audio": {"input": {"turn_detection": None}}}


def wire() -> Realtime:
    return Realtime(Options(instructions="be kind"))


def say(realtime: Realtime, type_: str, **fields: Any) -> list[Any]:
    return list(realtime.receive(json.dumps({"type": type_, **fields})))


def refused(answers: list[Any]) -> tuple[str, str | None]:
    """Return the code and the parameter of the one error that came, which JSON can say."""
    (event,) = answers
    assert event["type"] == "error" and event["error"]["type"] == "invalid_request_error"
    assert len(json.dumps(event, allow_nan=False)) < 2_000, "an error does not send everything back"
    return event["error"]["code"], event["error"]["param"]


def detection(**fields: Any) -> dict[str, Any]:
    return {"audio": {"input": {"turn_detection": fields}}}


def replied(realtime: Realtime, turn: int, seconds: float, status: str = "completed") -> str:
    """Hold a reply and return its item's id."""
    realtime.handle(ReplyStarted(turn))
    item: str = realtime.handle(ReplyText(turn, "One two three."))[0]["item"]["id"]
    realtime.handle(ReplyAudio(turn, AudioChunk(bytes(2 * int(24_000 * seconds)), 24_000)))
    realtime.handle(ReplyDone(turn, status, "One two three."))
    return item


BAD_UPDATES = [
    (detection(type="server_vad", threshold=7), "session.audio.input.turn_detection.threshold"),
    (
        detection(type="server_vad", prefix_padding_ms=-1),
        "session.audio.input.turn_detection.prefix_padding_ms",
    ),
    (detection(type="semantic_vad", eagerness="x"), "session.audio.input.turn_detection.eagerness"),
    (detection(type="x"), "session.audio.input.turn_detection.type"),
    ({"audio": {"output": {"voice": 5}}}, "session.audio.output.voice"),
    ({"max_output_tokens": "many"}, "session.max_output_tokens"),
    ({"type": "transcription"}, "session.type"),
    ({"instructions": None}, "session.instructions"),
]  # fmt: skip


@pytest.mark.parametrize(("update", "param"), BAD_UPDATES)
def test_refused_update_names_the_field_and_keeps_the_old_session(update: dict[str, Any], param: str) -> None:
    realtime = wire()
    before = say(realtime, "session.update", session={})[1]["session"]
    assert refused(say(realtime, "session.update", session=update)) == ("invalid_value", param)
    assert say(realtime, "session.update", session={})[1]["session"] == before


@pytest.mark.parametrize(
    ("name", "hint"),
    [("instrucions", ""), ("input_audio_format", "session.audio.input.format"), ("temperature", "")],
)
def test_unknown_field_is_refused(name: str, hint: str) -> None:
    realtime = wire()
    events = say(realtime, "session.update", session={"instructions": "Be brief.", name: "g711_ulaw"})
    assert (
        refused(events) == ("unknown_parameter", f"session.{name}") and hint in events[0]["error"]["message"]
    )
    assert say(realtime, "session.update", session={})[1]["session"]["instructions"] != "Be brief."


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 5000])
def test_numbers_that_json_cannot_express_are_refused(number: str) -> None:
    realtime = wire()
    text = '{"type": "session.update", "event_id": "mine", "session": {"prompt": 0}}'.replace("0", number)
    assert refused(list(realtime.receive(text)))[0] in ("invalid_json", "invalid_value")
    assert "prompt" not in say(realtime, "session.update", session={})[1]["session"]


@pytest.mark.parametrize("ms", [-1, 10**9, 10**400, 1e308, "x", None, 0.5])
def test_invalid_times_are_refused(ms: Any) -> None:
    realtime = wire()
    item = replied(realtime, 1, 1.0)
    assert refused(say(realtime, "conversation.item.truncate", item_id=item, audio_end_ms=ms)) == (
        "invalid_value",
        "audio_end_ms",
    )


def test_truncating_takes_no_more_than_was_sent() -> None:
    realtime = wire()
    item = replied(realtime, 1, 1.5)
    code = refused(say(realtime, "conversation.item.truncate", item_id=item, audio_end_ms=1501))
    assert code == ("invalid_value", "audio_end_ms")
    answers = say(realtime, "conversation.item.truncate", item_id=item, audio_end_ms=1500)
    assert answers[0] == Truncate(1, 1.5) and answers[1]["type"] == "conversation.item.truncated"


@pytest.mark.parametrize("cancels", [False, True])
def test_truncating_what_is_being_spoken_interrupts_it(cancels: bool) -> None:
    realtime = wire()
    realtime.handle(ReplyStarted(1))
    item = realtime.handle(ReplyText(1, "One two three."))[0]["item"]["id"]
    realtime.handle(ReplyAudio(1, AudioChunk(bytes(48_000), 24_000)))
    if cancels:
        assert say(realtime, "response.cancel") == [Interrupt()]
    assert say(realtime, "conversation.item.truncate", item_id=item, audio_end_ms=500)[0] == Truncate(1, 0.5)
    realtime.handle(Truncated(1, "One"))
    done = realtime.handle(ReplyDone(1, "cancelled", "One two"))[-1]["response"]
    assert done["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
    kept = say(realtime, "conversation.item.retrieve", item_id=item)[0]["item"]
    assert kept["content"][0]["transcript"] == "One", "the client knows better than the clock"


BIG = "x" * 2**17


@pytest.mark.parametrize(
    "message",
    [
        {"type": "session.update", "session": {"new": BIG}},
        {"type": "response.create", "response": {"metadata": {"k": BIG}}},
        {"type": "conversation.item.retrieve", "item_id": BIG},
        {"type": "input_audio_buffer.commit", "event_id": BIG},
        {"type": BIG},
        {
            "type": "conversation.item.create",
            "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": BIG}]},
        },
    ],
)
def test_values_that_are_kept_have_a_size_limit(message: dict[str, Any]) -> None:
    refused(list(wire().receive(json.dumps(message))))


def test_session_does_not_grow_update_by_update() -> None:
    realtime = wire()
    codes = [
        say(realtime, "session.update", session={"prompt": {f"new{n}": "x" * 2**15}})[0] for n in range(6)
    ]
    assert isinstance(codes[0], Configure)
    assert refused([codes[-1]]) == ("invalid_value", "session")


def test_audio_of_an_append_does_not_count_as_message_length() -> None:
    audio = base64.b64encode(bytes(10 * 2**20)).decode()
    realtime = wire()
    heard = say(realtime, "input_audio_buffer.append", audio=audio)
    while heard[-1:] == [ReadMore()]:
        heard[-1:] = realtime.read_more()
    sizes = [len(piece.pcm) for piece in heard if isinstance(piece, Hear)]
    assert len(sizes) == len(heard) and max(sizes) <= 33_000  # a second at a time
    assert abs(sum(sizes) - 10 * 2**20 * 2 // 3) < 2_000


def test_low_threshold_still_lets_turns_end() -> None:
    configure, _ = say(wire(), "session.update", session=detection(type="server_vad", threshold=0.1))
    assert 0.0 < configure.options.endpointing.release <= 0.1


def test_cancelling_a_response_that_has_not_begun() -> None:
    realtime = wire()
    assert say(realtime, "response.create") == [Respond(ReplyRequest(tag=1))]
    assert say(realtime, "response.cancel") == [Interrupt()]
    assert refused(say(realtime, "response.create"))[0] == "conversation_already_has_active_response"
    realtime.handle(ReplyStarted(1, tag=1))
    done = realtime.handle(ReplyDone(1, "cancelled", ""))[-1]
    assert done["type"] == "response.done"
    assert done["response"]["status_details"]["reason"] == "client_cancelled"
    assert say(realtime, "response.create") == [Respond(ReplyRequest(tag=2))]
    realtime.handle(ReplyStarted(2, tag=2))
    done = realtime.handle(ReplyDone(2, "cancelled", ""))[-1]
    assert done["response"]["status_details"]["reason"] == "turn_detected"


def test_cancelling_a_response_that_waits_for_a_transcript() -> None:
    realtime = wire()
    say(realtime, "session.update", session=MANUAL)
    say(realtime, "input_audio_buffer.append", audio=PCM)
    say(realtime, "input_audio_buffer.commit")
    say(realtime, "response.create", response={"metadata": {"first": "yes"}})
    assert say(realtime, "response.cancel") == [Interrupt()]
    realtime.handle(EndOfTurn("hi", 480))
    again = say(realtime, "response.create")
    assert again == [Respond(ReplyRequest(tag=2))], "the cancelled one is not waited for"
    assert realtime.handle(ReplyStarted(1, tag=2))[0]["response"]["metadata"] is None


def test_audio_after_a_commit_counts_for_the_next_commit() -> None:
    realtime = wire()
    say(realtime, "session.update", session=MANUAL)
    say(realtime, "input_audio_buffer.append", audio=PCM)
    assert say(realtime, "input_audio_buffer.commit") == [EndTurn()]
    assert refused(say(realtime, "input_audio_buffer.commit"))[0] == "input_audio_buffer_commit_empty"
    say(realtime, "input_audio_buffer.append", audio=PCM)
    assert refused(say(realtime, "input_audio_buffer.commit"))[0] == "input_audio_buffer_commit_active"
    realtime.handle(EndOfTurn("hi", 480))
    assert say(realtime, "input_audio_buffer.commit") == [EndTurn()]
    realtime.handle(EndOfTurn("there", 960))
    say(realtime, "input_audio_buffer.append", audio=PCM)
    assert say(realtime, "input_audio_buffer.clear")[0] == Forget()
    assert refused(say(realtime, "input_audio_buffer.commit"))[0] == "input_audio_buffer_commit_empty"


def test_speech_stops_only_where_it_started() -> None:
    realtime = wire()
    say(realtime, "input_audio_buffer.append", audio=PCM)
    assert say(realtime, "input_audio_buffer.commit") == [EndTurn()]
    committed = realtime.handle(NothingSaid(480))
    assert committed[0]["type"] == "input_audio_buffer.committed"
    assert committed[-1]["transcript"] == "" and committed[-1]["usage"]["seconds"] == 0.03
    (started,) = realtime.handle(SpeechStarted(16_000))
    say(realtime, "session.update", session=MANUAL)
    stopped = realtime.handle(EndOfTurn("hi", 32_000))[0]
    assert stopped["type"] == "input_audio_buffer.speech_stopped"
    assert stopped["item_id"] == started["item_id"]


def test_items_are_typed_once_and_can_be_retrieved() -> None:
    realtime = wire()
    item = {
        "type": "message",
        "role": "user",
        "id": "mine",
        "content": [{"type": "input_text", "text": "hi"}],
    }
    typed, added, done = say(realtime, "conversation.item.create", item=item)
    assert typed == AddItem(Entry("user", "hi", ("item", "mine")), None)
    assert added["item"] == done["item"] and added["previous_item_id"] is None
    assert say(realtime, "conversation.item.retrieve", item_id="mine")[0]["item"] == done["item"]
    assert refused(say(realtime, "conversation.item.create", item=item)) == (
        "item_create_duplicate_item_id",
        "item.id",
    )
    other = {**item, "id": "other"}
    answers = say(realtime, "conversation.item.create", item=other, previous_item_id="nowhere")
    assert refused(answers) == ("invalid_value", "previous_item_id")
    assert say(realtime, "conversation.item.create", item=other)[1]["previous_item_id"] == "mine"


def test_failed_reply_sends_one_error_with_its_cause() -> None:
    realtime = wire()
    realtime.handle(ReplyStarted(1))
    events = realtime.handle(ReplyDone(1, "failed", "", "llm: out of order"))
    assert [event["type"] for event in events].count("response.done") == 1
    error = events[0]["error"]
    assert (error["type"], error["code"], error["message"]) == (
        "server_error",
        "model_error",
        "llm: out of order",
    )
    assert events[-1]["response"]["status"] == "failed"
    assert realtime.handle(ReplyDone(1, "failed", "", "again")) == []
