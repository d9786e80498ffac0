"""From what happens in a call to its record, without a server."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.app.tool_result import ToolReturned
from rejoinder.agent.server.calls import recorder as module
from rejoinder.agent.server.calls.export import trace_lines
from rejoinder.agent.server.calls.privacy import keeper_of
from rejoinder.agent.server.calls.record import MAX_FIELD, MAX_TURN_TOOLS, CallRecord
from rejoinder.agent.server.calls.recorder import CANCELLED_TOOL, CallRecorder
from rejoinder.agent.wires.commands import AddText, RecordingTranscribed, Truncated
from rejoinder.agent.wires.observer import Observed
from rejoinder.pipeline import (
    RATE,
    EndOfTurn,
    ModelError,
    NothingSaid,
    OverlapEnded,
    OverlapStarted,
    PartialTranscript,
    ReplyCalled,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    SpeechStarted,
    ToolCall,
    Trace,
    TurnTraced,
    Usage,
)

CARD = "4111 1111 1111 1111"


class Recorded:
    """A recorder, its clock and the waits of its call."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: dict[str, float] = {}
        self.begun: list[CallRecorder] = []
        self.ended: list[CallRecorder] = []
        info = CallInfo("sess_1", "Twilio", "+15550100123", "+15550199")
        record = CallRecord.of(info, 1_700_000_000.0)
        begun, ended = self.begun.append, self.ended.append
        self.recorder = CallRecorder(record, lambda: self.now, self.waits, begun, ended, "big")

    def take(self, *happened: Observed) -> None:
        for each in happened:
            self.now += 1.0
            self.recorder.take(each)

    def call(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.recorder.record.to_json())
        return found

    @property
    def turns(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call()["turns"]
        return found


def trace(turn: int) -> Trace:
    marks = {"speech_ended": 5.0, "first_token": 5.2, "audio_sent": 5.25}
    return Trace(turn, "hello", marks, tokens=3)


def test_turn_has_its_words_latency_model_and_queue_waits() -> None:
    told = Recorded()
    told.waits["stt"] = 0.25
    told.take(PartialTranscript("hel", ""), EndOfTurn("Hello.", 5), ReplyStarted(1))
    told.take(ReplyText(1, "Good day."), TurnTraced(trace(1)), ReplyText(1, "How are you?"))
    assert told.turns[0]["status"] == "" and told.turns[0]["latency_ms"] == 250.0, "while the reply runs"
    done = ReplyDone(1, "cancelled", "Good day. How", usage=Usage(12, 6), trace=trace(1))
    told.take(done)
    told.waits["stt"] = 0.35
    told.take(EndOfTurn("And you?", 9), ReplyStarted(2), ReplyDone(2, "completed", "", trace=Trace(2)))
    first, second = told.turns
    assert (first["said"], first["text"], first["heard"]) == (
        "Hello.",
        "Good day. How are you?",
        "Good day. How",
    )
    assert (first["at"], first["status"], first["models"]) == (2.0, "cancelled", ["big"])
    assert first["budget"] == [{"name": "LLM first token", "ms": 200.0}, {"name": "send", "ms": 50.0}]
    assert first["tokens"] == {"read": 12, "written": 6}
    assert first["waits"] == [{"name": "stt", "ms": 250.0}]
    assert second["waits"] == [{"name": "stt", "ms": 100.0}], "since the turn before"
    assert second["models"] == [], "no model has written it"
    assert told.recorder.record.summary()["slowest_ms"] == 250.0


def test_typed_words_recordings_and_what_the_client_reports_as_heard() -> None:
    told = Recorded()
    told.take(
        AddText("system", "no"), AddText("user", "typed"), RecordingTranscribed(("item", "a"), "sent", 1.0)
    )
    told.take(ReplyStarted(1), ReplyText(1, "One two three."), ReplyDone(1, "completed", "One two three."))
    told.take(Truncated(1, "One two"), Truncated(1, None), Truncated(7, "of an old reply"), NothingSaid(3))
    (turn,) = told.turns
    assert (turn["said"], turn["text"], turn["heard"]) == ("typed\nsent", "One two three.", "One two")


def test_written_reply_comes_token_by_token_and_one_out_of_band_answers_nothing() -> None:
    told = Recorded()
    told.take(AddText("user", "write"), ReplyStarted(2, out_of_band=True, speaks=False), ReplyText(2, "no"))
    told.take(
        ReplyStarted(1, speaks=False), ReplyText(1, "Be"), ReplyText(1, "low"), ReplyDone(1, "completed", "")
    )
    beside, turn = told.turns
    assert (beside["beside"], beside["said"]) == (True, "")
    assert (turn["said"], turn["text"]) == ("write", "Below")
    assert told.recorder.record.summary()["turn_count"] == 1


def test_tools_have_their_results_and_durations() -> None:
    told = Recorded()
    told.take(ReplyStarted(1))
    calls = [ToolCall(f"c{number}", "look", "{}") for number in range(MAX_TURN_TOOLS + 2)]
    told.take(*(ReplyCalled(1, call) for call in calls))
    told.recorder.take(ToolReturned("c1", "failed", "it failed"))
    told.recorder.take(ToolReturned("c1", "completed", "again"))
    told.recorder.take(ToolReturned("unknown", "completed", ""))
    told.recorder.end(None, "the client has left")
    tools = told.turns[0]["tools"]
    assert len(tools) == MAX_TURN_TOOLS
    assert (tools[1]["result"], tools[1]["failed"]) == ("it failed", True)
    assert tools[1]["ms"] == 1000.0 * MAX_TURN_TOOLS
    assert (tools[0]["result"], tools[0]["ms"]) == (CANCELLED_TOOL, None)


def test_call_has_its_latencies_interruptions_and_shares_of_the_talk() -> None:
    told = Recorded()
    for number, wait in enumerate((0.2, 0.3, 0.4, 1.7), 1):
        marks = {"speech_ended": 5.0, "audio_sent": 5.0 + wait}
        told.take(SpeechStarted(0), EndOfTurn("Hello.", RATE), ReplyStarted(number))
        told.take(TurnTraced(Trace(number, marks=marks)))
        told.take(OverlapStarted(7), OverlapEnded("mm-hm") if number % 2 else SpeechStarted(7))
        told.take(ReplyDone(number, "completed", "", played=3.0, trace=Trace(number, marks=marks)))
    told.take(OverlapEnded("a noise in silence"))
    about = told.recorder.record.summary()
    assert [about[name] for name in ("p50_ms", "p95_ms", "slowest_ms")] == [300.0, 1700.0, 1700.0]
    assert about["longest_silence_ms"] == 1700.0
    assert (about["interruptions"], about["false_interruptions"]) == (2, 2)
    assert about["caller_share"] == 0.25, "four seconds of sixteen"
    assert Recorded().recorder.record.summary()["caller_share"] is None


def test_end_of_a_call_has_its_reason_error_and_unanswered_words() -> None:
    told = Recorded()
    told.take(EndOfTurn("Is anybody there?", 5))
    told.recorder.end(ModelError("whisper", "no memory"), "The speech recogniser failed.")
    assert told.ended == [told.recorder]
    call = told.call()
    assert (call["reason"], call["error"], call["errors"]) == (
        "The speech recogniser failed.",
        "model_error",
        1,
    )
    assert (call["turns"][0]["said"], call["turns"][0]["turn"], call["seconds"]) == (
        "Is anybody there?",
        None,
        1.0,
    )


def test_failed_reply_has_the_sentence_for_callers_only() -> None:
    told = Recorded()
    cause = ModelError("openai", "http://10.0.0.1 refused")
    told.take(ReplyStarted(1), ReplyDone(1, "failed", "", error="http://10.0.0.1 refused", cause=cause))
    assert told.turns[0]["error"] == "The model failed."
    assert told.recorder.record.summary()["errors"] == 1


def test_record_is_bounded_whatever_a_client_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TURNS", 3)
    monkeypatch.setattr(module, "MAX_CALL_CHARACTERS", 2 * MAX_FIELD)
    told = Recorded()
    for number in range(1, 6):
        told.take(EndOfTurn("x" * 3 * MAX_FIELD, 5), ReplyStarted(number), ReplyDone(number, "completed", ""))
    assert told.recorder.record.left_out == 2
    assert [turn["number"] for turn in told.turns] == [3, 4, 5]
    assert sum(len(turn["said"]) for turn in told.turns) == 0, "the room is used up by the first two"
    told.take(ReplyText(1, "late"), EndOfTurn("half \ud800 a character", 5), ReplyStarted(6))
    told.recorder.record.to_json().encode()  # half a surrogate pair has no UTF-8


def test_client_that_only_adds_texts_and_returns_no_result_uses_no_more_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_TURNS", 3)
    told = Recorded()
    tracemalloc.start()
    try:
        for number in range(1, 3000):
            told.take(ReplyStarted(number), ReplyCalled(number, ToolCall(f"{number}" * 200, "look", "{}")))
        told.take(*(AddText("user", "words") for _ in range(50_000)))
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 200_000
    told.recorder.take(ToolReturned("2999" * 200, "completed", "warm"))
    told.take(ReplyStarted(3000))
    assert told.turns[1]["tools"][0]["result"] == "warm" and len(told.turns[2]["said"]) == MAX_FIELD


def test_only_changed_turns_are_sent_again() -> None:
    told = Recorded()
    told.take(EndOfTurn("a", 5), ReplyStarted(1), EndOfTurn("b", 5), ReplyStarted(2))
    seen = told.recorder.changes
    assert told.recorder.record.described(seen)["turns"] == []
    told.take(Truncated(1, "x"))
    assert [turn["turn"] for turn in told.recorder.record.described(seen)["turns"]] == [1]


def told_card() -> Recorded:
    told = Recorded()
    told.take(EndOfTurn(f"My card is {CARD}.", 5), ReplyStarted(1))
    told.take(ReplyCalled(1, ToolCall("c1", "pay", json.dumps({"card": CARD, "amount": 5}))))
    told.recorder.take(ToolReturned("c1", "completed", f"paid with {CARD}"))
    told.take(ReplyText(1, "Thank you."), ReplyDone(1, "completed", "Thank you.", trace=trace(1)))
    told.recorder.end(None, "the client has left")
    return told


def test_all_words_are_left_out_on_request_and_the_times_stay() -> None:
    told = told_card()
    keeper_of("none")(told.recorder.record)
    (turn,) = told.turns
    assert (turn["said"], turn["text"], turn["heard"], turn["latency_ms"]) == ("…", "…", "…", 250.0)
    assert json.loads(turn["tools"][0]["arguments"]) == {"card": "…", "amount": "…"}
    assert "card is" not in told.recorder.record.words() and CARD not in told.recorder.record.to_json()
    assert told.call()["caller"] == "…123"


def test_half_a_character_in_arguments_leaves_a_record_that_can_be_kept() -> None:
    told = Recorded()
    told.take(ReplyStarted(1), ReplyCalled(1, ToolCall("c1", "look", r'{"a\ud800": "b\udc00"}')))
    told.recorder.end(None, "the client has left")
    keeper_of("none")(told.recorder.record)
    told.recorder.record.to_json().encode()


def test_all_words_are_kept_otherwise() -> None:
    told = told_card()
    before = told.call()
    keeper_of("all")(told.recorder.record)
    assert told.call() == before


def test_export_of_turns_has_the_lines_of_the_trace_file() -> None:
    told = told_card()
    (line,) = map(json.loads, trace_lines([told.recorder.record.to_json()]))
    assert line["budget"] == trace(1).described()["budget"] and line["marks"] == trace(1).described()["marks"]
    assert {name: line[name] for name in ("turn", "call", "status", "heard")} == {
        "turn": 1,
        "call": "sess_1",
        "status": "completed",
        "heard": "Thank you.",
    }
    assert line["at"] == "2023-11-14T22:13:21.000Z"
