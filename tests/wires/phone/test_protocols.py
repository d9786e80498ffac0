"""Carriers' protocols as plain objects: any message gives commands, messages, or a ProtocolError."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.callers.carriers import SIMS, AsteriskSim, ExotelSim, PlivoSim, TelnyxSim, TwilioSim, VonageSim

from rejoinder.agent.wires.commands import AddText, HangUp, Hear, Interrupt, Respond, Truncate
from rejoinder.agent.wires.phone.carrier import Carrier
from rejoinder.agent.wires.phone.keypad import Keypad
from rejoinder.agent.wires.phone.line import signature
from rejoinder.agent.wires.phone.marks import Marks
from rejoinder.agent.wires.phone.protocol import Phone, sniff
from rejoinder.agent.wires.phone.reorder import FAR, REORDER_WINDOW, Reorder
from rejoinder.pipeline import (
    AudioChunk,
    Options,
    OverlapEnded,
    OverlapStarted,
    PipelineError,
    ProtocolError,
    ReplyAudio,
    ReplyDone,
    ReplyStarted,
    SpeechStarted,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FRAMES = st.text() | st.binary() | JSON.map(json.dumps)
EVENTS = ["media", "start", "dtmf", "mark", "stop", "playedStream", "websocket:dtmf", "websocket:notify"]
EVENTS += ["DTMF_END", "MEDIA_MARK_PROCESSED", "MEDIA_START", "websocket:connected", "connected"]
SILENCE = bytes(320)


def begun(sim: TwilioSim) -> Carrier:
    *before, start = sim.start()
    assert [sniff(frame) for frame in before] == [None] * len(before)
    carrier = sniff(start)
    assert carrier is not None and carrier.name == sim.name
    return carrier


def phone(sim: TwilioSim) -> Phone:
    return Phone(begun(sim), Options(instructions="Be kind."))


def mutated(sim: TwilioSim) -> st.SearchStrategy[str]:
    """Return messages that are almost what a carrier sends: one value of them is anything."""
    said = [
        *sim.start(),
        *sim.audio(SILENCE),
        sim.digit("1"),
        sim.played("1-100") or "{}",
        sim.stop() or "{}",
    ]
    messages = [json.loads(text) for text in said if isinstance(text, str)]

    def change(message: dict[str, Any], path: int, value: Any) -> str:
        places: list[tuple[dict[str, Any], str]] = []
        copy = json.loads(json.dumps(message))

        def walk(here: dict[str, Any]) -> None:
            for key, inner in here.items():
                places.append((here, key))
                if isinstance(inner, dict):
                    walk(inner)

        walk(copy)
        if places:
            where, key = places[path % len(places)]
            where[key] = value
        return json.dumps(copy)

    return st.builds(change, st.sampled_from(messages), st.integers(0, 30), JSON)


def orderly(take: Callable[[Any], Iterable[Any]], given: Any) -> None:
    try:
        for answer in take(given):
            assert isinstance(answer, str | bytes | Hear | Interrupt | AddText | Respond | HangUp | Truncate)
    except ProtocolError as error:
        assert str(error)


@given(FRAMES)
def test_only_a_start_begins_a_call(frame: str | bytes) -> None:
    try:
        assert sniff(frame) is None
    except ProtocolError as error:
        assert str(error)


@pytest.mark.parametrize("sim", SIMS, ids=lambda sim: sim.name)
def test_each_message_has_only_its_own_effects(sim: type[TwilioSim]) -> None:
    @settings(max_examples=150)
    @given(st.lists(FRAMES | mutated(sim()) | st.builds(dict, event=st.sampled_from(EVENTS)).map(json.dumps)))
    def fuzz(frames: list[str | bytes]) -> None:
        call = phone(sim())
        call.handle(ReplyStarted(1))
        for frame in frames:
            try:
                sniff(frame)
            except ProtocolError as error:
                assert str(error)
            orderly(call.receive, frame)
            orderly(call.handle, ReplyAudio(1, AudioChunk(bytes(1764), 22_050)))

    fuzz()


@pytest.mark.parametrize("sim", SIMS, ids=lambda sim: sim.name)
def test_audio_before_the_start_is_refused(sim: type[TwilioSim]) -> None:
    line = sim()
    frames = [frame for _ in range(5) for frame in line.audio(bytes(2 * line.rate // 50))]
    with pytest.raises(ProtocolError, match="before the start"):
        sniff(frames[0])


@pytest.mark.parametrize("sim", SIMS, ids=lambda sim: sim.name)
def test_audio_arrives_whole_and_in_order(sim: type[TwilioSim]) -> None:
    line = sim()
    call, seconds = phone(line), 1.2
    heard = 0
    for _ in range(int(seconds * 50)):
        for frame in line.audio(bytes(2 * line.rate // 50)):
            heard += sum(len(command.pcm) for command in call.receive(frame) if isinstance(command, Hear))
    # Telnyx begins with its third frame here, and the two before it come too late.
    assert abs(heard / 32_000 - seconds) < 0.05


@pytest.mark.parametrize(
    ("sim", "announced", "instead"),
    [
        (TwilioSim, "audio/x-mulaw", "audio/x-l16"),
        (TwilioSim, "8000", "16000"),
        (TelnyxSim, "PCMA", "OPUS"),
        (PlivoSim, "audio/x-mulaw", "audio/x-l16"),
        (ExotelSim, '"8000"', '"11025"'),
        (VonageSim, "rate=16000", "rate=44100"),
        (AsteriskSim, "slin16", "opus"),
    ],
)
def test_error_names_an_unsupported_codec(sim: type[TwilioSim], announced: str, instead: str) -> None:
    start = str(sim().start()[-1])
    assert announced in start
    with pytest.raises(ProtocolError, match="announced") as refusal:
        sniff(start.replace(announced, instead))
    assert instead.strip('"').removeprefix("rate=") in str(refusal.value)


def test_error_for_plain_text_asterisk_says_how_to_fix_it() -> None:
    with pytest.raises(ProtocolError, match=r"f\(json\)"):
        sniff("MEDIA_START connection_id:1 channel:WebSocket/c format:ulaw optimal_frame_size:160")


def test_marks_returned_after_a_clear_do_not_count() -> None:
    line = TwilioSim()
    call = phone(line)
    call.handle(ReplyStarted(1))
    sent = [frame for n in range(40) for frame in call.handle(ReplyAudio(1, spoken(n)))]
    marks = [name for frame in sent for kind, name in line.take(str(frame)) if kind == "mark"]
    list(call.receive(str(line.played(marks[2]))))
    assert call.handle(SpeechStarted(0, interrupts=False)) == [], "what must be heard plays on"
    cut = call.handle(SpeechStarted(0))
    assert line.take(str(cut[0])) == [("clear", None)]
    assert isinstance(cut[1], Truncate) and cut[1].seconds == pytest.approx(3 * 0.16)
    for name in marks[3:]:
        assert list(call.receive(str(line.played(name)))) == []
    call.handle(ReplyStarted(2))
    call.handle(ReplyAudio(2, spoken(0)))
    again = call.handle(ReplyDone(2, "cancelled", ""))
    assert Truncate(2, 0.0) in again


def spoken(number: int) -> AudioChunk:
    """Return a slice of a reply, 40 ms at the rate of the wire."""
    return AudioChunk(bytes(640), 8000, 320 * number)


def test_fully_heard_reply_is_not_truncated() -> None:
    line = TwilioSim()
    call = phone(line)
    call.handle(ReplyStarted(1))
    sent = [call.handle(ReplyAudio(1, spoken(n))) for n in range(10)]
    sent.append(call.handle(ReplyDone(1, "completed", "all")))
    for frame in (frame for frames in sent for frame in frames):
        for kind, name in line.take(str(frame)):
            if kind == "mark":
                list(call.receive(str(line.played(name))))
    assert call.handle(SpeechStarted(0)) == []


def test_key_clears_a_done_reply_that_is_still_playing() -> None:
    line = TwilioSim()
    call = phone(line)
    call.handle(ReplyStarted(1))
    sent = [frame for n in range(10) for frame in call.handle(ReplyAudio(1, spoken(n)))]
    marks = [name for frame in sent for kind, name in line.take(str(frame)) if kind == "mark"]
    call.handle(ReplyDone(1, "completed", "all"))
    list(call.receive(str(line.played(marks[0]))))
    interrupt, clear, truncate = call.receive(str(line.digit("1")))
    assert interrupt == Interrupt() and line.take(str(clear)) == [("clear", None)]
    assert truncate == Truncate(1, pytest.approx(0.16))
    assert list(call.receive(str(line.digit("2")))) == []


def test_nothing_is_played_while_asterisk_holds() -> None:
    line = AsteriskSim()
    call = phone(line)
    call.handle(ReplyStarted(1))
    sent = [frame for n in range(40) for frame in call.handle(ReplyAudio(1, spoken(n)))]
    marks = [ask[1] for frame in sent for ask in line.take(frame) if ask[0] == "mark"]  # type: ignore[arg-type]
    list(call.receive(str(line.played(marks[0]))))
    place = int(marks[0].split("-")[1]) / 1000
    call.handle(OverlapStarted(0))
    list(call.receive(bytes(3200)))  # a tenth of a second
    cut = call.handle(SpeechStarted(0))
    assert cut[-1] == Truncate(1, pytest.approx(place, abs=0.001))


def test_only_asterisk_is_asked_to_hold() -> None:
    for sim in SIMS:
        call = phone(sim())
        held = [*call.handle(OverlapStarted(0)), *call.handle(OverlapEnded("mm-hm"))]
        assert call.options.holds_audio == (sim is AsteriskSim)
        names = [json.loads(str(frame))["command"] for frame in held]
        assert names == (["PAUSE_MEDIA", "CONTINUE_MEDIA"] if sim is AsteriskSim else [])


def test_short_audio_is_flushed_when_no_more_follows() -> None:
    call = phone(ExotelSim())
    call.handle(ReplyStarted(1))
    assert call.handle(ReplyAudio(1, AudioChunk(bytes(400), 8000))) == [] and call.flush_after is not None
    (media,) = call.flush()
    assert len(ExotelSim().take(str(media))[0][1]) == 320, "whole frames: half of one would be a gap"
    assert call.flush_after is None and call.flush() == []
    media, _ = call.handle(ReplyDone(1, "completed", "all"))
    assert len(ExotelSim().take(str(media))[0][1]) == 320


def test_second_reply_in_a_row_that_fails_ends_the_call() -> None:
    call = phone(TwilioSim())
    for turn, status in enumerate(["failed", "completed", "failed", "cancelled"], 1):
        call.handle(ReplyStarted(turn))
        call.handle(ReplyDone(turn, status, "", "x"))
    with pytest.raises(PipelineError, match="2 replies in a row have failed, the last: out of reach"):
        call.handle(ReplyDone(5, "failed", "", "out of reach"))


def test_end_of_the_stream_is_the_end_of_the_call() -> None:
    assert list(phone(TwilioSim()).receive(str(TwilioSim().stop()))) == [HangUp("the caller has hung up")]


@given(st.permutations(range(12)).filter(lambda order: all(abs(n - i) <= 2 for i, n in enumerate(order))))
def test_reordered_frames_are_sorted(order: list[int]) -> None:
    reorder = Reorder()
    reorder.take(99, b"99")
    came = [frame for number in order for frame in reorder.take(100 + number, str(number).encode())]
    assert came == [str(number).encode() for number in range(12)]


@given(st.lists(st.integers(0, 60), max_size=80))
def test_frames_come_once_and_never_backwards(numbers: list[int]) -> None:
    reorder, came = Reorder(), []
    for number in numbers:
        came += [int(frame) for frame in reorder.take(number, str(number).encode())]
    assert came == sorted(set(came))


def test_missing_frame_is_skipped_after_the_window() -> None:
    reorder = Reorder()
    assert reorder.take(1, b"1") == [b"1"]
    came = [reorder.take(n, str(n).encode()) for n in range(3, 4 + REORDER_WINDOW)]
    assert came[-2] == [] and len(came[-1]) == REORDER_WINDOW + 1
    assert reorder.take(2, b"2") == [], "it is too late"
    assert reorder.take(10 * FAR, b"x") == [b"x"], "a new count"


def test_keys_end_with_a_hash_or_a_pause() -> None:
    keypad = Keypad()
    assert [keypad.press(key, 0) for key in "12#"] == [None, None, "12"]
    assert keypad.press("#", 0) == "#" and keypad.press("hello", 0) is None
    assert keypad.press("7", 16_000) is None
    assert keypad.look(47_999) is None and keypad.look(48_000) == "7" and keypad.look(99_000) is None
    assert [keypad.press("1", 0) for _ in range(64)][-1] == "1" * 64


def test_marks_give_the_played_position() -> None:
    marks = Marks()
    names = [marks.place(1, seconds) for seconds in (0.2, 0.4, 0.6)]
    assert marks.played(1, 0) == 0.0 and not marks.answered
    marks.returned(names[0], 16_000)
    assert marks.played(1, 16_000) == 0.2
    assert marks.played(1, 17_600) == pytest.approx(0.3)
    assert marks.played(1, 90_000) == 0.4, "the next mark is still out"
    marks.returned("nobody", 90_000)
    marks.returned(names[2], 90_000)
    assert marks.played(1, 90_000) == 0.6 and not marks.waiting
    assert marks.played(2, 90_000) == 0.0


def test_twilio_signature_matches_its_documentation() -> None:
    form = {"CallSid": "CA1234567890ABCDE", "Caller": "+14158675309", "Digits": "1234"}
    form |= {"From": "+14158675309", "To": "+18005551212"}
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    assert signature("12345", url, form) == "RSOYDt4T1cUTdK1PDd93/VVr8B8="
