"""Raw PCM: any message gives commands, messages or an error, and a whole conversation works."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import ROOT
from support.serving import LINE, PATIENCE, SCRIPTED, THREE_LINES, Server, serving
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from rejoinder.agent.server.keys import PROTOCOL, hashed
from rejoinder.agent.wires.commands import (
    AddText,
    Configure,
    EndTurn,
    Hear,
    Interrupt,
    ReadMore,
    Respond,
    Truncate,
    Truncated,
)
from rejoinder.agent.wires.pcm.messages import MAX_AUDIO
from rejoinder.agent.wires.pcm.protocol import Pcm
from rejoinder.pipeline import (
    AudioChunk,
    Event,
    Options,
    OverlapEnded,
    OverlapStarted,
    ProtocolError,
    ReplyAudio,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    SpeechStarted,
)

SECOND = bytes(32_000)
KEY = "rj_the_key_of_this_test"


def said(wire: Pcm, **fields: Any) -> list[Any]:
    return list(wire.receive(json.dumps(fields)))


def told(wire: Pcm, *events: Event) -> list[Any]:
    return [one for event in events for one in wire.handle(event)]


def speaking(wire: Pcm, seconds: int = 4) -> None:
    told(wire, ReplyStarted(1), ReplyText(1, "One two."))
    for number in range(seconds):
        told(wire, ReplyAudio(1, AudioChunk(SECOND, 16_000, number * 16_000)))


# --- without a socket ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "rates"),
    [
        ({}, (16_000, 16_000)),
        ({"rate": "8000"}, (8_000, 8_000)),
        ({"rate": "44100", "out": "24000"}, (44_100, 24_000)),
        ({"rate": "7999"}, None),
        ({"rate": "16001"}, None),
        ({"out": "96000"}, None),
        ({"rate": "-8000"}, None),
        ({"rate": "१६०००"}, None),
        ({"rate": "9" * 5000}, None),
    ],
)
def test_rates(query: dict[str, str], rates: tuple[int, int] | None) -> None:
    if rates is None:
        with pytest.raises(ProtocolError, match="hertz"):
            Pcm.of(Options(), query)
        return
    (ready,) = Pcm.of(Options(), query).open()
    assert isinstance(ready, dict) and (ready["rate"], ready["out"]) == rates


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"codec": "opus"}, "codec: no such parameter here, only rate, out, hold"),
        ({"rate": "8000", "Out": "8000"}, "Out: no such parameter"),
        ({"hold": "yes"}, "hold=yes: it is true or false"),
    ],
)
def test_unknown_parameters_are_refused(query: dict[str, str], reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        Pcm.of(Options(), query)


def test_messages_become_commands() -> None:
    wire = Pcm(Options(instructions="Be kind."))
    assert list(wire.receive(SECOND)) == [Hear(SECOND)]
    assert said(wire, type="text", text="hi") == [Interrupt(), AddText("user", "hi"), Respond(None)]
    assert said(wire, type="reply") == [Interrupt(), Respond(None)]
    assert said(wire, type="interrupt") == [Interrupt()]
    assert said(wire, type="end_turn") == [EndTurn()]
    (command,) = said(wire, type="options", detect_turns=False, interrupt=False)
    assert isinstance(command, Configure)
    options = command.options
    assert (options.instructions, options.detect_turns, options.interrupt_response) == (
        "Be kind.",
        False,
        False,
    )
    (command,) = said(wire, type="options", instructions="Be brief.")
    assert command.options.instructions == "Be brief." and not command.options.detect_turns


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x00", "invalid_audio"),
        (bytes(MAX_AUDIO + 2), "invalid_audio"),
        ("", "invalid_message"),
        ("{", "invalid_message"),
        ("[]", "invalid_message"),
        ("[" * 60_000, "invalid_message"),
        ("x" * 70_000, "invalid_message"),
        ('{"type": "nonsense"}', "invalid_message"),
        ('{"type": "text"}', "invalid_message"),
        ('{"type": "text", "text": "\\ud800"}', "invalid_message"),
        ('{"type": "played", "turn": 1, "ms": -1}', "invalid_message"),
        ('{"type": "options", "patience": 3}', "invalid_message"),
        ('{"type": "options", "detect_turns": "no"}', "invalid_message"),
        ('{"type": "options", "interrupt": 0}', "invalid_message"),
    ],
)
def test_wrong_message_gets_an_error_and_the_call_goes_on(frame: str | bytes, code: str) -> None:
    wire = Pcm(Options())
    (error,) = wire.receive(frame)
    assert isinstance(error, dict) and error["type"] == "error" and error["code"] == code and error["message"]
    assert list(wire.receive(SECOND)) == [Hear(SECOND)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
KINDS = ["text", "reply", "interrupt", "end_turn", "played", "options"]
ALMOST = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={
        "text": JSON,
        "turn": st.integers(0, 3) | JSON,
        "ms": st.integers(0, 9000) | JSON,
        "interrupt": JSON,
    },
).map(json.dumps)
FRAMES = st.binary() | st.text() | JSON.map(json.dumps) | ALMOST
EVENTS = st.sampled_from(
    [
        ReplyStarted(1),
        ReplyStarted(2),
        ReplyText(1, "One."),
        ReplyAudio(1, AudioChunk(SECOND, 16_000)),
        ReplyAudio(2, AudioChunk(SECOND, 16_000)),
        ReplyDone(1, "completed", "One."),
        ReplyDone(2, "cancelled", "O"),
        SpeechStarted(0),
        OverlapStarted(0),
        OverlapEnded("mm"),
    ]
)


@given(
    st.lists(FRAMES | EVENTS, max_size=20), st.sampled_from([8_000, 11_025, 16_000, 48_000]), st.booleans()
)
def test_anything_in_any_order_ends_in_commands_messages_or_an_error(
    steps: list[Any], rate: int, holds: bool
) -> None:
    wire = Pcm(Options(holds_audio=holds), rate, 24_000)
    for step in steps:
        for answer in wire.receive(step) if isinstance(step, str | bytes) else wire.handle(step):
            assert isinstance(
                answer,
                dict
                | bytes
                | Hear
                | ReadMore
                | AddText
                | Configure
                | EndTurn
                | Interrupt
                | Respond
                | Truncate,
            )
            if isinstance(answer, dict):
                assert json.loads(json.dumps(answer)) == answer
            if isinstance(answer, Hear | bytes):
                assert len(answer.pcm if isinstance(answer, Hear) else answer) % 2 == 0
            if isinstance(answer, Truncate):
                assert answer.seconds >= 0.0
                wire.handle(Truncated(answer.turn, "some"))


CLEAR = {"type": "clear", "turn": 1}


def test_without_reports_the_session_estimates_what_was_heard() -> None:
    wire = Pcm(Options())
    speaking(wire)
    assert told(wire, SpeechStarted(0, interrupts=False)) == [{"type": "speech_started"}], "it speaks on"
    assert told(wire, SpeechStarted(0)) == [{"type": "speech_started"}, CLEAR]
    (ended,) = told(wire, ReplyDone(1, "cancelled", "One"))
    assert ended == {"type": "reply_ended", "turn": 1, "status": "cancelled", "heard": "One", "ms": 4000}
    assert told(wire, SpeechStarted(0)) == [{"type": "speech_started"}], "it is dropped once"


def test_played_reports_set_the_position_which_then_advances() -> None:
    wire = Pcm(Options())
    speaking(wire)
    assert said(wire, type="played", turn=1, ms=1000) == []
    list(wire.receive(SECOND))
    assert told(wire, SpeechStarted(0))[1:] == [CLEAR, Truncate(1, 2.0)]
    assert told(wire, Truncated(1, "One")) == []
    (ended,) = told(wire, ReplyDone(1, "cancelled", "One two."))
    assert ended["heard"] == "One", "its end says what the client's clock made of it"


def test_fully_played_reply_is_not_truncated() -> None:
    wire = Pcm(Options())
    speaking(wire)
    told(wire, ReplyDone(1, "completed", "One two."))
    said(wire, type="played", turn=1, ms=3500)
    list(wire.receive(SECOND))
    assert told(wire, SpeechStarted(0)) == [{"type": "speech_started"}]


def test_reply_still_playing_at_the_client_is_truncated() -> None:
    wire = Pcm(Options())
    speaking(wire)
    told(wire, ReplyDone(1, "completed", "One two."))
    said(wire, type="played", turn=1, ms=500)
    assert told(wire, SpeechStarted(0))[1:] == [CLEAR, Truncate(1, 0.5)]
    assert told(wire, Truncated(1, "One")) == [{"type": "heard", "turn": 1, "heard": "One"}]


@pytest.mark.parametrize("text", ["One", None])
def test_end_of_a_cut_reply_waits_for_what_was_heard(text: str | None) -> None:
    wire = Pcm(Options(interrupt_response=False))
    speaking(wire)
    said(wire, type="played", turn=1, ms=500)
    assert told(wire, ReplyDone(1, "cancelled", "One two.")) == [CLEAR, Truncate(1, 0.5)]
    *heard, ended = told(wire, Truncated(1, text))
    assert heard == ([{"type": "heard", "turn": 1, "heard": "One"}] if text else [])
    assert (ended["type"], ended["heard"]) == ("reply_ended", text or "One two.")


def test_long_message_is_read_by_the_second() -> None:
    wire = Pcm(Options())
    assert wire.receive(2 * SECOND + bytes(640)) == [Hear(SECOND), ReadMore()]
    assert wire.read_more() == [Hear(SECOND), ReadMore()]
    assert wire.read_more() == [Hear(bytes(640))]


def test_position_stands_still_while_the_client_holds_its_audio() -> None:
    wire = Pcm.of(Options(), {"hold": "true"})
    speaking(wire)
    said(wire, type="played", turn=1, ms=1000)
    assert told(wire, OverlapStarted(0)) == [{"type": "pause"}]
    list(wire.receive(SECOND))
    assert told(wire, OverlapEnded("mm-hm")) == [{"type": "resume"}]
    list(wire.receive(SECOND))
    assert told(wire, OverlapStarted(0)) == [{"type": "pause"}]
    list(wire.receive(SECOND))
    assert told(wire, SpeechStarted(0))[1:] == [CLEAR, Truncate(1, 2.0)]


# --- over a socket ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("pcm"), llm=THREE_LINES) as server:
        yield server


class Device:
    """What an integrator would write: sends sound, collects sound and messages."""

    def __init__(self, socket: ClientConnection, rate: int) -> None:
        self.socket, self.rate = socket, rate
        self.audio = b""
        self.seen: list[dict[str, Any]] = []

    def speak(self) -> None:
        loud = np.random.default_rng(0).normal(0.0, 6000.0, int(0.6 * self.rate)).astype("<i2")
        for chunk in np.array_split(np.concatenate((loud, np.zeros(int(1.2 * self.rate), "<i2"))), 50):
            self.socket.send(chunk.tobytes())

    def say(self, **fields: Any) -> None:
        self.socket.send(json.dumps(fields))

    def listen(self, seconds: float) -> None:
        while len(self.audio) < seconds * 2 * self.rate:
            if isinstance(message := self.socket.recv(timeout=PATIENCE), bytes):
                self.audio += message

    def until(self, type_: str) -> dict[str, Any]:
        while True:
            message = self.socket.recv(timeout=PATIENCE)
            if isinstance(message, bytes):
                self.audio += message
                continue
            self.seen.append(json.loads(message))
            if self.seen[-1]["type"] == type_:
                return self.seen[-1]


@contextmanager
def device(server: Server, rate: int = 16_000, query: str = "", **options: Any) -> Iterator[Device]:
    url = f"ws://127.0.0.1:{server.port}/v1/pcm?rate={rate}{query}"
    with connect(url, proxy=None, ping_interval=None, **options) as socket:
        yield Device(socket, rate)


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 48_000])
def test_conversation_at_any_rate(server: Server, rate: int) -> None:
    with device(server, rate) as one:
        ready = one.until("ready")
        assert (ready["rate"], ready["out"]) == (rate, rate)
        one.speak()
        assert one.until("transcript")["text"] == "what is the weather"
        ended = one.until("reply_ended")
        assert ended["status"] == "completed" and ended["heard"] == (LINE * 3).strip()
        assert ended["ms"] == len(one.audio) // 2 * 1000 // rate, "as much as came"
        seconds = len(LINE * 3) * 0.06
        assert abs(ended["ms"] / 1000 - seconds) < 0.5, "at the rate that was asked for"
        kinds = [event["type"] for event in one.seen]
        assert kinds[:2] == ["ready", "speech_started"]
        texts = [event["text"] for event in one.seen if event["type"] == "reply_text"]
        assert " ".join(texts) == (LINE * 3).strip()
        assert server.get("/v1/sessions")["data"][0]["id"] == ready["id"]
    server.wait_idle()


def test_speech_interrupts_and_the_clients_report_decides_what_was_heard(server: Server) -> None:
    with device(server) as one:
        one.speak()
        turn = one.until("reply_started")["turn"]
        one.listen(2.0)
        one.say(type="played", turn=turn, ms=200)
        one.say(type="interrupt")
        assert one.until("clear")["turn"] == turn
        size = len(one.audio)
        ended = one.until("reply_ended")
        assert ended["status"] == "cancelled" and ended["ms"] >= 2000
        assert len(ended["heard"]) <= len("This is"), "of 0.2 s, and not of what was sent"
        assert len(one.audio) == size, "nothing comes behind a clear"
        one.say(type="text", text="go on")
        again = one.until("reply_started")["turn"]
        one.until("reply_text")
        one.speak()
        one.until("speech_started")
        assert one.until("clear")["turn"] == again
        assert one.until("reply_ended")["status"] == "cancelled"
    server.wait_idle()


def test_button_ends_the_turn_and_typed_words_are_answered(server: Server) -> None:
    with device(server) as one:
        one.say(type="options", detect_turns=False)
        one.socket.send(np.full(16_000, 8_000, "<i2").tobytes())
        one.say(type="end_turn")
        assert one.until("transcript")["text"] == "what is the weather"
        assert one.until("reply_ended")["status"] == "completed"
        one.say(type="played", turn="x")
        assert one.until("error")["code"] == "invalid_message"
        one.say(type="text", text="and tomorrow?")
        assert one.until("reply_ended")["status"] == "completed"
    server.wait_idle()


def test_unsupported_rate_gets_an_error(server: Server) -> None:
    with device(server, 4_000) as one, pytest.raises(ConnectionClosed):
        one.until("ready")
    assert one.socket.close_code == 1008 and "rate=4000" in (one.socket.close_reason or "")


def test_key_is_needed_where_calls_need_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_API_KEYS", hashed(KEY))
    with serving(tmp_path) as server:
        with pytest.raises(InvalidStatus) as refused, device(server):
            pass
        assert refused.value.response.status_code == 401
        with device(server, additional_headers={"Authorization": f"Bearer {KEY}"}) as one:
            one.until("ready")
        with device(server, subprotocols=["pcm", f"{PROTOCOL}{KEY}"]) as one:
            one.until("ready")
            assert one.socket.subprotocol == "pcm"


def test_secret_brings_its_session_along(server: Server) -> None:
    """Its tools are left out: this wire cannot return their results."""
    session = {"max_output_tokens": 2, "audio": {"input": {"turn_detection": None}}}
    request = urllib.request.Request(
        f"{server.http}/v1/realtime/client_secrets",
        json.dumps({"session": {"type": "realtime", **session}}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        secret = json.load(answer)["value"]
    with device(server, additional_headers={"Authorization": f"Bearer {secret}"}) as one:
        one.until("ready")
        one.speak()
        one.say(type="end_turn")
        assert one.until("transcript")["text"] == "what is the weather"
        assert [event["type"] for event in one.seen].count("transcript") == 1, "the turn ended by hand only"
        one.say(type="reply")
        ended = one.until("reply_ended")
        assert (ended["status"], ended["heard"]) == ("incomplete", "This is")


def test_example_asks_and_writes_the_answer(server: Server, tmp_path: Path) -> None:
    question, answer = tmp_path / "question.wav", tmp_path / "answer.wav"
    with wave.open(str(question), "wb") as file:
        file.setparams((1, 2, 22_050, 0, "NONE", ""))
        file.writeframes(np.random.default_rng(0).normal(0.0, 6000.0, 22_050).astype("<i2").tobytes())
    script = ROOT / "examples" / "pcm.py"
    url = f"ws://127.0.0.1:{server.port}/v1/pcm"
    done = subprocess.run(
        [sys.executable, script, question, answer, url], capture_output=True, text=True, timeout=3 * PATIENCE
    )
    assert done.returncode == 0, done.stderr
    with wave.open(str(answer)) as file:
        assert file.getframerate() == 22_050
        seconds = file.getnframes() / 22_050
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    assert abs(seconds - len(LINE * 3) * 0.06) < 0.5 and np.abs(samples).max() > 5_000
    assert f"{seconds:.1f} s of speech" in done.stdout and SCRIPTED["stt"].split("|")[1] in done.stdout
